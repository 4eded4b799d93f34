// The blocks of 256 in a GGUF file whose codes are points of a codebook: IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S,
// IQ1_S, IQ1_M (ggml-quants.c: dequantize_row_iq2_xxs ... dequantize_row_iq1_m).
#include <bit>
#include <cstring>

#include "file_block.h"

namespace duo::cpu {

namespace {

// Four times seven signs, then a scale of four bits. The number of signs is even, so the file leaves out each eighth.
void read_signs(const uint8_t * p, unit_row & u, int block) {
    const uint32_t bits = load32(p);
    for (int i = 0; i < 4; ++i) {
        const auto seven       = uint8_t((bits >> (7 * i)) & 127);
        u.signs[4 * block + i] = uint8_t(seven | ((std::popcount(seven) & 1) << 7));
    }
    u.scales[block] = uint8_t(bits >> 28);
}

void write_signs(const unit_row & u, int block, uint8_t * p) {
    uint32_t bits = uint32_t(u.scales[block]) << 28;
    for (int i = 0; i < 4; ++i) {
        bits |= uint32_t(u.signs[4 * block + i] & 127) << (7 * i);
    }
    store32(p, bits);
}

// Scales of four bits, two in a byte.
void read_scales(const uint8_t * p, unit_row & u, int n) {
    for (int i = 0; i < n; ++i) {
        u.scales[i] = (p[i / 2] >> (i % 2 * 4)) & 15;
    }
}

void write_scales(const unit_row & u, uint8_t * p, int n) {
    for (int i = 0; i < n; i += 2) {
        p[i / 2] = uint8_t(u.scales[i] | (u.scales[i + 1] << 4));
    }
}

// Indices of eight bits and more, whose n_high upper bits lie elsewhere: those of 8 / n_high indices in a byte.
void read_indices(const uint8_t * low, const uint8_t * high, unit_row & u, int n, int n_high) {
    for (int i = 0; i < n; ++i) {
        const int at = i * n_high;
        const int up = n_high == 0 ? 0 : (high[at / 8] >> (at % 8)) & ((1 << n_high) - 1);
        u.indices[i] = uint16_t(low[i] | (up << 8));
    }
}

void write_indices(const unit_row & u, uint8_t * low, uint8_t * high, int n, int n_high) {
    std::memset(high, 0, size_t(n * n_high / 8));
    for (int i = 0; i < n; ++i) {
        const int at = i * n_high;
        low[i]       = uint8_t(u.indices[i] & 255);
        if (n_high > 0) {
            high[at / 8] |= uint8_t((u.indices[i] >> 8) << (at % 8));
        }
    }
}

void read_iq2_xxs(const uint8_t * p, unit_row & u) {
    for (int b = 0; b < 8; ++b) {
        for (int i = 0; i < 4; ++i) {
            u.indices[4 * b + i] = p[2 + 8 * b + i];
        }
        read_signs(p + 6 + 8 * b, u, b);
    }
}

void write_iq2_xxs(const unit_row & u, uint8_t * p) {
    for (int b = 0; b < 8; ++b) {
        for (int i = 0; i < 4; ++i) {
            p[2 + 8 * b + i] = uint8_t(u.indices[4 * b + i]);
        }
        write_signs(u, b, p + 6 + 8 * b);
    }
}

// An index of nine bits and seven signs share two bytes.
void read_iq2_xs(const uint8_t * p, unit_row & u) {
    for (int i = 0; i < 32; ++i) {
        const int  both  = p[2 + 2 * i] | (p[3 + 2 * i] << 8);
        const auto seven = uint8_t(both >> 9);
        u.indices[i]     = uint16_t(both & 511);
        u.signs[i]       = uint8_t(seven | ((std::popcount(seven) & 1) << 7));
    }
    read_scales(p + 66, u, 16);
}

void write_iq2_xs(const unit_row & u, uint8_t * p) {
    for (int i = 0; i < 32; ++i) {
        const int both = u.indices[i] | ((u.signs[i] & 127) << 9);
        p[2 + 2 * i]   = uint8_t(both & 255);
        p[3 + 2 * i]   = uint8_t(both >> 8);
    }
    write_scales(u, p + 66, 16);
}

// Blocks of 32: the upper bits of four indices, a scale of three bits, and whether an eighth is subtracted.
void read_iq1_s(const uint8_t * p, unit_row & u) {
    for (int b = 0; b < 8; ++b) {
        const int both = p[34 + 2 * b] | (p[35 + 2 * b] << 8);
        for (int i = 4 * b; i < 4 * b + 4; ++i) {
            u.indices[i] = uint16_t(p[2 + i] | (((both >> (i % 4 * 3)) & 7) << 8));
            u.signs[i]   = uint8_t(both >> 15);
        }
        u.scales[b] = (both >> 12) & 7;
    }
}

void write_iq1_s(const unit_row & u, uint8_t * p) {
    for (int b = 0; b < 8; ++b) {
        int both = (u.scales[b] << 12) | (u.signs[4 * b] << 15);
        for (int i = 4 * b; i < 4 * b + 4; ++i) {
            p[2 + i] = uint8_t(u.indices[i] & 255);
            both |= (u.indices[i] >> 8) << (i % 4 * 3);
        }
        p[34 + 2 * b] = uint8_t(both & 255);
        p[35 + 2 * b] = uint8_t(both >> 8);
    }
}

// The upper bits of an index and its eighth share four bits. Four times four scales of three bits leave four bits each
// for the unit's scale.
void read_iq1_m(const uint8_t * p, unit_row & u) {
    int d = 0;
    for (int i = 0; i < 32; ++i) {
        const int four = (p[32 + i / 2] >> (i % 2 * 4)) & 15;
        u.indices[i]   = uint16_t(p[i] | ((four & 7) << 8));
        u.signs[i]     = uint8_t(four >> 3);
    }
    for (int i = 0; i < 4; ++i) {
        const int both = p[48 + 2 * i] | (p[49 + 2 * i] << 8);
        d |= (both >> 12) << (4 * i);
        for (int j = 0; j < 4; ++j) {
            u.scales[4 * i + j] = (both >> (3 * j)) & 7;
        }
    }
    u.d[0] = uint8_t(d & 255);
    u.d[1] = uint8_t(d >> 8);
}

void write_iq1_m(const unit_row & u, uint8_t * p) {
    const int d = u.d[0] | (u.d[1] << 8);
    for (int i = 0; i < 32; i += 2) {
        p[i]          = uint8_t(u.indices[i] & 255);
        p[i + 1]      = uint8_t(u.indices[i + 1] & 255);
        const int low = (u.indices[i] >> 8) | (u.signs[i] << 3);
        p[32 + i / 2] = uint8_t(low | ((u.indices[i + 1] >> 8) << 4) | (u.signs[i + 1] << 7));
    }
    for (int i = 0; i < 4; ++i) {
        int both = ((d >> (4 * i)) & 15) << 12;
        for (int j = 0; j < 4; ++j) {
            both |= u.scales[4 * i + j] << (3 * j);
        }
        p[48 + 2 * i] = uint8_t(both & 255);
        p[49 + 2 * i] = uint8_t(both >> 8);
    }
}

} // namespace

void read_unit_iq(format f, const uint8_t * p, unit_row & u) {
    std::memcpy(u.d, p, 2);
    switch (f) {
        case format::iq1_s:
            return read_iq1_s(p, u);
        case format::iq1_m:
            return read_iq1_m(p, u);
        case format::iq2_xxs:
            return read_iq2_xxs(p, u);
        case format::iq2_xs:
            return read_iq2_xs(p, u);
        case format::iq2_s:
            read_indices(p + 2, p + 66, u, 32, 2);
            std::memcpy(u.signs, p + 34, 32);
            return read_scales(p + 74, u, 16);
        case format::iq3_xxs:
            read_indices(p + 2, nullptr, u, 64, 0);
            for (int b = 0; b < 8; ++b) {
                read_signs(p + 66 + 4 * b, u, b);
            }
            return;
        default: // IQ3_S
            read_indices(p + 2, p + 66, u, 64, 1);
            std::memcpy(u.signs, p + 74, 32);
            return read_scales(p + 106, u, 8);
    }
}

void write_unit_iq(format f, const unit_row & u, uint8_t * p) {
    std::memcpy(p, u.d, 2);
    switch (f) {
        case format::iq1_s:
            return write_iq1_s(u, p);
        case format::iq1_m:
            return write_iq1_m(u, p);
        case format::iq2_xxs:
            return write_iq2_xxs(u, p);
        case format::iq2_xs:
            return write_iq2_xs(u, p);
        case format::iq2_s:
            write_indices(u, p + 2, p + 66, 32, 2);
            std::memcpy(p + 34, u.signs, 32);
            return write_scales(u, p + 74, 16);
        case format::iq3_xxs:
            write_indices(u, p + 2, p + 66, 64, 0);
            for (int b = 0; b < 8; ++b) {
                write_signs(u, b, p + 66 + 4 * b);
            }
            return;
        default: // IQ3_S
            write_indices(u, p + 2, p + 66, 64, 1);
            std::memcpy(p + 74, u.signs, 32);
            return write_scales(u, p + 106, 8);
    }
}

} // namespace duo::cpu
