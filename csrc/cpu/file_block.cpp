#include "file_block.h"

#include <cstring>

namespace duo::cpu {

namespace {

void read_q8_0(const uint8_t * p, unit_row & u) {
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

// Q4_0, IQ4_NL: code i and i + 16 of a block share a byte.
void read_q4(const uint8_t * p, unit_row & u) {
    for (int b = 0; b < 2; ++b, p += 18) {
        std::memcpy(u.d + 2 * b, p, 2);
        for (int i = 0; i < 16; ++i) {
            u.codes[32 * b + i]      = p[2 + i] & 15;
            u.codes[32 * b + i + 16] = p[2 + i] >> 4;
        }
    }
}

void write_q4(const unit_row & u, uint8_t * p) {
    for (int b = 0; b < 2; ++b, p += 18) {
        std::memcpy(p, u.d + 2 * b, 2);
        for (int i = 0; i < 16; ++i) {
            p[2 + i] = uint8_t(u.codes[32 * b + i] | (u.codes[32 * b + i + 16] << 4));
        }
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

void read_q45(const uint8_t * p, unit_row & u, const parts & at) {
    for (int b = 0; b < 2; ++b, p += at.n_bytes) {
        uint8_t * codes = u.codes + 32 * b;
        std::memcpy(u.d + 2 * b, p, 2);
        if (at.least != 0) {
            std::memcpy(u.d + 4 + 2 * b, p + at.least, 2);
        }
        for (int i = 0; i < 16; ++i) {
            codes[i]      = p[at.codes + i] & 15;
            codes[i + 16] = p[at.codes + i] >> 4;
        }
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
        for (int i = 0; i < 16; ++i) {
            p[at.codes + i] = uint8_t((codes[i] & 15) | ((codes[i + 16] & 15) << 4));
        }
        for (int i = 0; at.high != 0 && i < 4; ++i) {
            p[at.high + i] = 0;
            for (int j = 0; j < 8; ++j) {
                p[at.high + i] |= uint8_t((codes[8 * i + j] >> 4) << j);
            }
        }
    }
}

// 12 bytes hold 8 scales and 8 minima of 6 bits (ggml-quants.c: get_scale_min_k4).
void read_scales(const uint8_t * p, unit_row & u) {
    for (int j = 0; j < 4; ++j) {
        u.scales[j]     = p[j] & 63;
        u.least[j]      = p[j + 4] & 63;
        u.scales[j + 4] = uint8_t((p[j + 8] & 15) | ((p[j] >> 6) << 4));
        u.least[j + 4]  = uint8_t((p[j + 8] >> 4) | ((p[j + 4] >> 6) << 4));
    }
}

void write_scales(const unit_row & u, uint8_t * p) {
    for (int j = 0; j < 4; ++j) {
        p[j]     = uint8_t(u.scales[j] | ((u.scales[j + 4] >> 4) << 6));
        p[j + 4] = uint8_t(u.least[j] | ((u.least[j + 4] >> 4) << 6));
        p[j + 8] = uint8_t((u.scales[j + 4] & 15) | ((u.least[j + 4] & 15) << 4));
    }
}

void read_q45_k(const uint8_t * p, unit_row & u, bool fifth) {
    std::memcpy(u.d, p, 4);
    read_scales(p + 4, u);
    const uint8_t * high = p + 16;
    const uint8_t * q    = p + (fifth ? 48 : 16);
    for (int j = 0; j < 4; ++j) {
        for (int i = 0; i < 32; ++i) {
            u.codes[64 * j + i]      = q[32 * j + i] & 15;
            u.codes[64 * j + 32 + i] = q[32 * j + i] >> 4;
        }
        for (int i = 0; fifth && i < 32; ++i) {
            u.codes[64 * j + i] |= uint8_t(((high[i] >> (2 * j)) & 1) << 4);
            u.codes[64 * j + 32 + i] |= uint8_t(((high[i] >> (2 * j + 1)) & 1) << 4);
        }
    }
}

void write_q45_k(const unit_row & u, uint8_t * p, bool fifth) {
    std::memcpy(p, u.d, 4);
    write_scales(u, p + 4);
    uint8_t * high = p + 16;
    uint8_t * q    = p + (fifth ? 48 : 16);
    for (int j = 0; j < 4; ++j) {
        for (int i = 0; i < 32; ++i) {
            q[32 * j + i] = uint8_t((u.codes[64 * j + i] & 15) | ((u.codes[64 * j + 32 + i] & 15) << 4));
        }
    }
    for (int i = 0; fifth && i < 32; ++i) {
        high[i] = 0;
        for (int j = 0; j < 8; ++j) {
            high[i] |= uint8_t((u.codes[32 * j + i] >> 4) << j);
        }
    }
}

void read_q6_k(const uint8_t * p, unit_row & u) {
    for (int n = 0; n < 2; ++n) {
        const uint8_t * low  = p + 64 * n;
        const uint8_t * high = p + 128 + 32 * n;
        uint8_t *       c    = u.codes + 128 * n;
        for (int i = 0; i < 32; ++i) {
            c[i]      = uint8_t((low[i] & 15) | ((high[i] & 3) << 4));
            c[i + 32] = uint8_t((low[i + 32] & 15) | (((high[i] >> 2) & 3) << 4));
            c[i + 64] = uint8_t((low[i] >> 4) | (((high[i] >> 4) & 3) << 4));
            c[i + 96] = uint8_t((low[i + 32] >> 4) | ((high[i] >> 6) << 4));
        }
    }
    std::memcpy(u.scales, p + 192, 16);
    std::memcpy(u.d, p + 208, 2);
}

void write_q6_k(const unit_row & u, uint8_t * p) {
    for (int n = 0; n < 2; ++n) {
        uint8_t *       low  = p + 64 * n;
        uint8_t *       high = p + 128 + 32 * n;
        const uint8_t * c    = u.codes + 128 * n;
        for (int i = 0; i < 32; ++i) {
            low[i]      = uint8_t((c[i] & 15) | ((c[i + 64] & 15) << 4));
            low[i + 32] = uint8_t((c[i + 32] & 15) | ((c[i + 96] & 15) << 4));
            high[i] =
                uint8_t((c[i] >> 4) | ((c[i + 32] >> 4) << 2) | ((c[i + 64] >> 4) << 4) | ((c[i + 96] >> 4) << 6));
        }
    }
    std::memcpy(p + 192, u.scales, 16);
    std::memcpy(p + 208, u.d, 2);
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
        case format::q4_k:
        case format::q5_k:
            return read_q45_k(p, u, f == format::q5_k);
        default:
            return read_q6_k(p, u);
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
        case format::q4_k:
        case format::q5_k:
            return write_q45_k(u, p, f == format::q5_k);
        default:
            return write_q6_k(u, p);
    }
}

} // namespace duo::cpu
