#include "file_block.h"

#include <cstring>

namespace duo::cpu {

namespace {

void read_q8_0(const uint8_t * __restrict p, unit_row & u) {
    for (int b = 0; b < 2; ++b, p += 34) {
        std::memcpy(u.d + 2 * b, p, 2);
        for (int i = 0; i < 32; ++i) {
            u.codes[32 * b + i] = p[2 + i] ^ 0x80;
        }
    }
}

void write_q8_0(const unit_row & u, uint8_t * p) {
    for (int b = 0; b < 2; ++b, p += 34) {
        std::memcpy(p, u.d + 2 * b, 2);
        for (int i = 0; i < 32; ++i) {
            p[2 + i] = u.codes[32 * b + i] ^ 0x80;
        }
    }
}

// Q4_0, IQ4_NL.
void read_q4(const uint8_t * __restrict p, unit_row & u) {
    for (int b = 0; b < 2; ++b, p += 18) {
        std::memcpy(u.d + 2 * b, p, 2);
        read_halves(p + 2, u.codes + 32 * b);
    }
}

void write_q4(const unit_row & u, uint8_t * p) {
    for (int b = 0; b < 2; ++b, p += 18) {
        std::memcpy(p, u.d + 2 * b, 2);
        write_halves(u.codes + 32 * b, p + 2);
    }
}

// MXFP4: the exponent of a power of two, codes as in Q4_0. Codes of the table are twice the numbers, so the scale is
// 2^(e - 128), which bf16 holds: a denormal for the lowest two (ggml-impl.h: ggml_e8m0_to_fp32_half).
void read_mxfp4(const uint8_t * __restrict p, unit_row & u) {
    for (int b = 0; b < 2; ++b, p += 17) {
        const int e    = p[0];
        const int bits = e < 2 ? 0x20 << e : (e - 1) << 7;
        u.d[2 * b]     = uint8_t(bits & 255);
        u.d[2 * b + 1] = uint8_t(bits >> 8);
        read_halves(p + 1, u.codes + 32 * b);
    }
}

void write_mxfp4(const unit_row & u, uint8_t * p) {
    for (int b = 0; b < 2; ++b, p += 17) {
        const int bits = u.d[2 * b] | (u.d[2 * b + 1] << 8);
        p[0]           = uint8_t(bits < 0x80 ? bits >> 6 : (bits >> 7) + 1);
        write_halves(u.codes + 32 * b, p + 1);
    }
}

// Q4_1, Q5_0, Q5_1: scale, minimum, the fifth bits of 32 codes, the rest as in Q4_0.
struct parts {
    int least, high, codes; // offsets; 0: the format has none
    int n_bytes;
};

constexpr parts parts_of(format f) {
    return f == format::q4_1 ? parts{2, 0, 4, 20} : f == format::q5_0 ? parts{0, 2, 6, 22} : parts{2, 4, 8, 24};
}

void read_q45(const uint8_t * __restrict p, unit_row & u, const parts & at) {
    for (int b = 0; b < 2; ++b, p += at.n_bytes) {
        uint8_t * codes = u.codes + 32 * b;
        std::memcpy(u.d + 2 * b, p, 2);
        if (at.least != 0) {
            std::memcpy(u.d + 4 + 2 * b, p + at.least, 2);
        }
        read_halves(p + at.codes, codes);
        for (int i = 0; at.high != 0 && i < 32; ++i) {
            codes[i] |= uint8_t(((p[at.high + i / 8] >> (i % 8)) & 1) << 4);
        }
    }
}

void write_q45(const unit_row & u, uint8_t * p, const parts & at) {
    for (int b = 0; b < 2; ++b, p += at.n_bytes) {
        const uint8_t * codes = u.codes + 32 * b;
        std::memcpy(p, u.d + 2 * b, 2);
        if (at.least != 0) {
            std::memcpy(p + at.least, u.d + 4 + 2 * b, 2);
        }
        write_halves(codes, p + at.codes);
        for (int i = 0; at.high != 0 && i < 4; ++i) {
            p[at.high + i] = 0;
            for (int j = 0; j < 8; ++j) {
                p[at.high + i] |= uint8_t((codes[8 * i + j] >> 4) << j);
            }
        }
    }
}

} // namespace

void read_unit(format f, const uint8_t * p, unit_row & u) {
    switch (f) {
        case format::q8_0:
            return read_q8_0(p, u);
        case format::q4_0:
        case format::iq4_nl:
            return read_q4(p, u);
        case format::q4_1:
        case format::q5_0:
        case format::q5_1:
            return read_q45(p, u, parts_of(f));
        case format::mxfp4:
            return read_mxfp4(p, u);
        default:
            return has_codebook(f) ? read_unit_iq(f, p, u) : read_unit_k(f, p, u);
    }
}

void write_unit(format f, const unit_row & u, uint8_t * p) {
    switch (f) {
        case format::q8_0:
            return write_q8_0(u, p);
        case format::q4_0:
        case format::iq4_nl:
            return write_q4(u, p);
        case format::q4_1:
        case format::q5_0:
        case format::q5_1:
            return write_q45(u, p, parts_of(f));
        case format::mxfp4:
            return write_mxfp4(u, p);
        default:
            return has_codebook(f) ? write_unit_iq(f, u, p) : write_unit_k(f, u, p);
    }
}

} // namespace duo::cpu
