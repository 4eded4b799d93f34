// The blocks of 256 in a GGUF file: Q2_K to Q6_K, IQ4_XS, TQ1_0, TQ2_0.
// __restrict: otherwise a byte that is written may be one that is read next, and compilers make no vectors of the
// loops.
#include <cstring>

#include "file_block.h"

namespace duo::cpu {

namespace {

// 12 bytes hold 8 scales and 8 minima of 6 bits (ggml-quants.c: get_scale_min_k4).
void read_scales(const uint8_t * __restrict p, unit_row & u) {
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

void read_q45_k(const uint8_t * __restrict p, unit_row & u, bool fifth) {
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

void read_q6_k(const uint8_t * __restrict p, unit_row & u) {
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

// Codes i, i + 32, i + 64 and i + 96 of a half share a byte.
void read_low_bits(const uint8_t * __restrict p, unit_row & u) {
    for (int i = 0; i < 256; ++i) {
        u.codes[i] = (p[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2)) & 3;
    }
}

// Q2_K: 4-bit scales and minima share a byte, codes as above.
void read_q2_k(const uint8_t * __restrict p, unit_row & u) {
    for (int j = 0; j < 16; ++j) {
        u.scales[j] = p[j] & 15;
        u.least[j]  = p[j] >> 4;
    }
    read_low_bits(p + 16, u);
    std::memcpy(u.d, p + 80, 4);
}

void write_low_bits(const unit_row & u, uint8_t * p) {
    for (int i = 0; i < 64; ++i) {
        const uint8_t * c = u.codes + i / 32 * 128 + i % 32;
        p[i]              = uint8_t((c[0] & 3) | ((c[32] & 3) << 2) | ((c[64] & 3) << 4) | ((c[96] & 3) << 6));
    }
}

void write_q2_k(const unit_row & u, uint8_t * p) {
    for (int j = 0; j < 16; ++j) {
        p[j] = uint8_t(u.scales[j] | (u.least[j] << 4));
    }
    write_low_bits(u, p + 16);
    std::memcpy(p + 80, u.d, 4);
}

// Q3_K: the third bits, low bits as in Q2_K, 16 scales of 6 bits (ggml-quants.c: dequantize_row_q3_K).
void read_q3_k(const uint8_t * __restrict p, unit_row & u) {
    for (int i = 0; i < 256; ++i) {
        const int low  = (p[32 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2)) & 3;
        const int high = (p[i % 32] >> (i / 32)) & 1;
        u.codes[i]     = uint8_t(low | (high << 2));
    }
    const uint8_t * s = p + 96;
    for (int j = 0; j < 16; ++j) {
        const int low = j < 8 ? s[j] & 15 : s[j - 8] >> 4;
        u.scales[j]   = uint8_t((low | (((s[8 + j % 4] >> (j / 4 * 2)) & 3) << 4)) - 32);
    }
    std::memcpy(u.d, p + 108, 2);
}

void write_q3_k(const unit_row & u, uint8_t * p) {
    for (int i = 0; i < 32; ++i) {
        p[i] = 0;
        for (int j = 0; j < 8; ++j) {
            p[i] |= uint8_t((u.codes[32 * j + i] >> 2) << j);
        }
    }
    write_low_bits(u, p + 32);
    uint8_t six[16];
    for (int j = 0; j < 16; ++j) {
        six[j] = uint8_t(u.scales[j] + 32);
    }
    for (int j = 0; j < 8; ++j) {
        p[96 + j] = uint8_t((six[j] & 15) | ((six[j + 8] & 15) << 4));
    }
    for (int j = 0; j < 4; ++j) {
        p[104 + j] =
            uint8_t((six[j] >> 4) | ((six[j + 4] >> 4) << 2) | ((six[j + 8] >> 4) << 4) | ((six[j + 12] >> 4) << 6));
    }
    std::memcpy(p + 108, u.d, 2);
}

// IQ4_XS: a scale, the upper two bits of 8 scales of 6 bits, their lower four, codes as in Q4_0.
void read_iq4_xs(const uint8_t * __restrict p, unit_row & u) {
    std::memcpy(u.d, p, 2);
    for (int b = 0; b < 8; ++b) {
        const int low  = (p[4 + b / 2] >> (b % 2 * 4)) & 15;
        const int high = (p[2 + b / 4] >> (b % 4 * 2)) & 3;
        u.scales[b]    = uint8_t((low | (high << 4)) - 32);
        read_halves(p + 8 + 16 * b, u.codes + 32 * b);
    }
}

void write_iq4_xs(const unit_row & u, uint8_t * p) {
    std::memcpy(p, u.d, 2);
    std::memset(p + 2, 0, 6);
    for (int b = 0; b < 8; ++b) {
        const int six = uint8_t(u.scales[b] + 32);
        p[4 + b / 2] |= uint8_t((six & 15) << (b % 2 * 4));
        p[2 + b / 4] |= uint8_t((six >> 4) << (b % 4 * 2));
        write_halves(u.codes + 32 * b, p + 8 + 16 * b);
    }
}

} // namespace

void read_unit_k(format f, const uint8_t * p, unit_row & u) {
    switch (f) {
        case format::q2_k:
            return read_q2_k(p, u);
        case format::q3_k:
            return read_q3_k(p, u);
        case format::q4_k:
        case format::q5_k:
            return read_q45_k(p, u, f == format::q5_k);
        case format::iq4_xs:
            return read_iq4_xs(p, u);
        case format::tq1_0: // digits stay in their bytes
            std::memcpy(u.codes, p, 52);
            std::memcpy(u.d, p + 52, 2);
            return;
        case format::tq2_0:
            std::memcpy(u.d, p + 64, 2);
            return read_low_bits(p, u);
        default:
            return read_q6_k(p, u);
    }
}

void write_unit_k(format f, const unit_row & u, uint8_t * p) {
    switch (f) {
        case format::q2_k:
            return write_q2_k(u, p);
        case format::q3_k:
            return write_q3_k(u, p);
        case format::q4_k:
        case format::q5_k:
            return write_q45_k(u, p, f == format::q5_k);
        case format::iq4_xs:
            return write_iq4_xs(u, p);
        case format::tq1_0:
            std::memcpy(p, u.codes, 52);
            std::memcpy(p + 52, u.d, 2);
            return;
        case format::tq2_0:
            std::memcpy(p + 64, u.d, 2);
            return write_low_bits(u, p);
        default:
            return write_q6_k(u, p);
    }
}

} // namespace duo::cpu
