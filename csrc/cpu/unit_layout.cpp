#include "unit_layout.h"

#include <cstring>

namespace duo::cpu {

namespace {

// Offsets of the vectors of 2-bit or 4-bit codes in a unit. If n_high is 1, a vector of high bits follows after every
// n_vectors of them. Data that is read together is stored together; otherwise the hardware prefetcher sees two jumping
// streams.
struct vector_place {
    int    n_vectors, n_high;
    size_t operator()(int i) const { return size_t(64 * (i + i / n_vectors * n_high)); }
};

// Pairs of four codes share four bytes. lane: the row's index in the panel.
void put_nibbles(const unit_row & u, int n, uint8_t * q, int lane, vector_place at = {1, 0}) {
    for (int i = 0; i < n / 8; ++i) {
        store32(q + at(i) + 4 * lane,
                (load32(u.codes + 8 * i) & 0x0f0f0f0f) | ((load32(u.codes + 8 * i + 4) & 0x0f0f0f0f) << 4));
    }
}

void get_nibbles(unit_row & u, int n, const uint8_t * q, int lane, vector_place at = {1, 0}) {
    for (int i = 0; i < n / 8; ++i) {
        const uint32_t v = load32(q + at(i) + 4 * lane);
        store32(u.codes + 8 * i, v & 0x0f0f0f0f);
        store32(u.codes + 8 * i + 4, (v >> 4) & 0x0f0f0f0f);
    }
}

// Four groups of four codes share four bytes, two bits each.
void put_low_bits(const unit_row & u, uint8_t * q, int lane, vector_place at) {
    for (int b = 0; b < 16; ++b) {
        uint32_t v = 0;
        for (int g = 0; g < 4; ++g) {
            v |= (load32(u.codes + 16 * b + 4 * g) & 0x03030303) << (2 * g);
        }
        store32(q + at(b) + 4 * lane, v);
    }
}

void get_low_bits(unit_row & u, const uint8_t * q, int lane, vector_place at) {
    for (int b = 0; b < 16; ++b) {
        const uint32_t v = load32(q + at(b) + 4 * lane);
        for (int g = 0; g < 4; ++g) {
            store32(u.codes + 16 * b + 4 * g, (v >> (2 * g)) & 0x03030303);
        }
    }
}

// 6-bit scales and minima: the low four bits of both share a byte; the high bits of blocks j and j + 4 share another.
void put_scales(const unit_row & u, uint8_t * p, int lane) {
    for (int j = 0; j < 8; ++j) {
        p[16 * j + lane] = uint8_t((u.scales[j] & 15) | ((u.least[j] & 15) << 4));
    }
    for (int j = 0; j < 4; ++j) {
        p[128 + 16 * j + lane] = uint8_t((u.scales[j] >> 4) | ((u.least[j] >> 4) << 2) | ((u.scales[j + 4] >> 4) << 4) |
                                         ((u.least[j + 4] >> 4) << 6));
    }
}

void get_scales(unit_row & u, const uint8_t * p, int lane) {
    for (int j = 0; j < 8; ++j) {
        const int high = p[128 + 16 * (j % 4) + lane] >> (j < 4 ? 0 : 4);
        u.scales[j]    = uint8_t((p[16 * j + lane] & 15) | ((high & 3) << 4));
        u.least[j]     = uint8_t((p[16 * j + lane] >> 4) | (((high >> 2) & 3) << 4));
    }
}

// The high bits of eight groups of four codes (n_bits = 1) or of four groups (2) share four bytes.
// from: the lowest of these bits in a code.
void put_high_bits(const unit_row & u, int n, int n_bits, uint8_t * h, size_t stride, int lane, int from = 4) {
    const int      n_groups = 8 / n_bits;
    const uint32_t mask     = n_bits == 1 ? 0x01010101 : 0x03030303;
    for (int b = 0; b < n / (4 * n_groups); ++b) {
        uint32_t v = 0;
        for (int g = 0; g < n_groups; ++g) {
            v |= ((load32(u.codes + 4 * (b * n_groups + g)) >> from) & mask) << (n_bits * g);
        }
        store32(h + stride * size_t(b) + 4 * lane, v);
    }
}

void get_high_bits(unit_row & u, int n, int n_bits, const uint8_t * h, size_t stride, int lane, int from = 4) {
    const int      n_groups = 8 / n_bits;
    const uint32_t mask     = n_bits == 1 ? 0x01010101 : 0x03030303;
    for (int b = 0; b < n / (4 * n_groups); ++b) {
        const uint32_t v = load32(h + stride * size_t(b) + 4 * lane);
        for (int g = 0; g < n_groups; ++g) {
            uint8_t * c = u.codes + 4 * (b * n_groups + g);
            store32(c, load32(c) | (((v >> (n_bits * g)) & mask) << from));
        }
    }
}

// Scales of 8 bits.
void put_bytes(const uint8_t * scales, int n, uint8_t * p, int lane) {
    for (int j = 0; j < n; ++j) {
        p[16 * j + lane] = scales[j];
    }
}

void get_bytes(uint8_t * scales, int n, const uint8_t * p, int lane) {
    for (int j = 0; j < n; ++j) {
        scales[j] = p[16 * j + lane];
    }
}

// Blocks of 32 with a minimum: the minima of both blocks of a unit come after their scales.
bool has_minima(format f) {
    return f == format::q4_1 || f == format::q5_1;
}

size_t codes_at(format f) {
    return has_minima(f) ? 128 : 64;
}

} // namespace

void put_unit(format f, const unit_row & u, uint8_t * p, int lane) {
    switch (f) {
        case format::q8_0:
            std::memcpy(p + 2 * lane, u.d, 2);
            std::memcpy(p + 32 + 2 * lane, u.d + 2, 2);
            for (int i = 0; i < 16; ++i) {
                store32(p + 64 + 64 * i + 4 * lane, load32(u.codes + 4 * i));
            }
            break;
        case format::q4_0:
        case format::iq4_nl:
        case format::mxfp4:
            std::memcpy(p + 2 * lane, u.d, 2);
            std::memcpy(p + 32 + 2 * lane, u.d + 2, 2);
            put_nibbles(u, 64, p + 64, lane);
            break;
        case format::q4_1:
        case format::q5_0:
        case format::q5_1:
            for (int i = 0; i < (has_minima(f) ? 4 : 2); ++i) {
                std::memcpy(p + 32 * i + 2 * lane, u.d + 2 * i, 2);
            }
            put_nibbles(u, 64, p + codes_at(f), lane, {4, f == format::q4_1 ? 0 : 1});
            if (f != format::q4_1) {
                put_high_bits(u, 64, 1, p + codes_at(f) + 256, 320, lane);
            }
            break;
        case format::q2_k:
            std::memcpy(p + 2 * lane, u.d, 2);
            std::memcpy(p + 32 + 2 * lane, u.d + 2, 2);
            for (int j = 0; j < 16; ++j) {
                p[64 + 16 * j + lane] = uint8_t(u.scales[j] | (u.least[j] << 4));
            }
            put_low_bits(u, p + 320, lane, {1, 0});
            break;
        case format::q3_k:
            std::memcpy(p + 2 * lane, u.d, 2);
            put_bytes(u.scales, 16, p + 64, lane);
            put_low_bits(u, p + 320, lane, {2, 1});
            put_high_bits(u, 256, 1, p + 448, 192, lane, 2);
            break;
        case format::iq4_xs:
            std::memcpy(p + 2 * lane, u.d, 2);
            put_bytes(u.scales, 8, p + 64, lane);
            put_nibbles(u, 256, p + 192, lane);
            break;
        case format::q4_k:
        case format::q5_k:
            std::memcpy(p + 2 * lane, u.d, 2);
            std::memcpy(p + 32 + 2 * lane, u.d + 2, 2);
            put_scales(u, p + 64, lane);
            put_nibbles(u, 256, p + 256, lane, {4, f == format::q5_k ? 1 : 0});
            if (f == format::q5_k) {
                put_high_bits(u, 256, 1, p + 512, 320, lane);
            }
            break;
        case format::q6_k:
            std::memcpy(p + 2 * lane, u.d, 2);
            put_bytes(u.scales, 16, p + 64, lane);
            put_nibbles(u, 256, p + 320, lane, {2, 1});
            put_high_bits(u, 256, 2, p + 448, 192, lane);
            break;
        case format::tq1_0:
            std::memcpy(p + 2 * lane, u.d, 2);
            for (int i = 0; i < 13; ++i) {
                store32(p + 64 + 64 * i + 4 * lane, load32(u.codes + 4 * i));
            }
            break;
        case format::tq2_0:
            std::memcpy(p + 2 * lane, u.d, 2);
            put_low_bits(u, p + 64, lane, {1, 0});
            break;
        default: // floats are no units: repack.cpp
            if (has_codebook(f)) {
                put_unit_iq(f, u, p, lane);
            }
    }
}

void get_unit(format f, unit_row & u, const uint8_t * p, int lane) {
    std::memcpy(u.d, p + 2 * lane, 2);
    if (!has_gap(f)) {
        std::memcpy(u.d + 2, p + 32 + 2 * lane, 2);
    }
    switch (f) {
        case format::q8_0:
            for (int i = 0; i < 16; ++i) {
                store32(u.codes + 4 * i, load32(p + 64 + 64 * i + 4 * lane));
            }
            break;
        case format::q4_0:
        case format::iq4_nl:
        case format::mxfp4:
            get_nibbles(u, 64, p + 64, lane);
            break;
        case format::q4_1:
        case format::q5_0:
        case format::q5_1:
            for (int i = 2; has_minima(f) && i < 4; ++i) {
                std::memcpy(u.d + 2 * i, p + 32 * i + 2 * lane, 2);
            }
            get_nibbles(u, 64, p + codes_at(f), lane, {4, f == format::q4_1 ? 0 : 1});
            if (f != format::q4_1) {
                get_high_bits(u, 64, 1, p + codes_at(f) + 256, 320, lane);
            }
            break;
        case format::q2_k:
            for (int j = 0; j < 16; ++j) {
                u.scales[j] = p[64 + 16 * j + lane] & 15;
                u.least[j]  = p[64 + 16 * j + lane] >> 4;
            }
            get_low_bits(u, p + 320, lane, {1, 0});
            break;
        case format::q3_k:
            get_bytes(u.scales, 16, p + 64, lane);
            get_low_bits(u, p + 320, lane, {2, 1});
            get_high_bits(u, 256, 1, p + 448, 192, lane, 2);
            break;
        case format::iq4_xs:
            get_bytes(u.scales, 8, p + 64, lane);
            get_nibbles(u, 256, p + 192, lane);
            break;
        case format::q4_k:
        case format::q5_k:
            get_scales(u, p + 64, lane);
            get_nibbles(u, 256, p + 256, lane, {4, f == format::q5_k ? 1 : 0});
            if (f == format::q5_k) {
                get_high_bits(u, 256, 1, p + 512, 320, lane);
            }
            break;
        case format::q6_k:
            get_bytes(u.scales, 16, p + 64, lane);
            get_nibbles(u, 256, p + 320, lane, {2, 1});
            get_high_bits(u, 256, 2, p + 448, 192, lane);
            break;
        case format::tq1_0:
            for (int i = 0; i < 13; ++i) {
                store32(u.codes + 4 * i, load32(p + 64 + 64 * i + 4 * lane));
            }
            break;
        case format::tq2_0:
            get_low_bits(u, p + 64, lane, {1, 0});
            break;
        default: // floats are no units: repack.cpp
            if (has_codebook(f)) {
                get_unit_iq(f, u, p, lane);
            }
    }
}

} // namespace duo::cpu
