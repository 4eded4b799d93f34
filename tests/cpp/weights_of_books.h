// Weights of the types that have codebooks, as GGUF defines them: ggml-quants.c, dequantize_row_iq*, read anew.
#pragma once

#include <bit>
#include <cstdint>

#include "cpu/codebook.h"

namespace {

using namespace duo::cpu;

// Number i of a block of IQ1, IQ2 or IQ3, without the block's scale.
double book_number(format f, const uint8_t * p, int i) {
    static const int two[3]   = {8, 25, 43};
    static const int three[8] = {4, 12, 20, 28, 36, 44, 52, 62};
    const int        b        = i / 32; // of 32
    const int        e        = i / 8;  // of 8
    const auto       word     = [](const uint8_t * q) {
        return uint32_t(q[0] | (q[1] << 8) | (q[2] << 16)) | (uint32_t(q[3]) << 24);
    };
    const auto negative = [&](uint32_t seven) { // the eighth sign makes their number even
        const uint32_t all = seven | (uint32_t(std::popcount(seven)) % 2 << 7);
        return (all >> (i % 8)) % 2 != 0;
    };
    const auto size = [&](const uint32_t * book, int index) {
        return int(book[index] >> (8 * (i % 4) + (f == format::iq3_xxs || f == format::iq3_s ? 0 : i % 8 / 4 * 4))) & 7;
    };
    const auto nibble = [](int byte, int which) { return which == 0 ? byte & 15 : byte >> 4; };
    switch (f) {
        case format::iq2_xxs: {
            const uint32_t rest = word(p + 6 + 8 * b);
            const double   m    = (0.5 + (rest >> 28)) * 0.25 * two[size(book_iq2_xxs.entries, p[2 + 8 * b + e % 4])];
            return negative((rest >> (7 * (e % 4))) & 127) ? -m : m;
        }
        case format::iq2_xs: {
            const uint32_t both = p[2 + 2 * e] | (uint32_t(p[3 + 2 * e]) << 8);
            const double m = (0.5 + nibble(p[66 + b], i / 16 % 2)) * 0.25 * two[size(book_iq2_xs.entries, both & 511)];
            return negative(both >> 9) ? -m : m;
        }
        case format::iq2_s: {
            const int    index = p[2 + e] | (((p[66 + b] >> (2 * (e % 4))) & 3) << 8);
            const double m     = (0.5 + nibble(p[74 + b], i / 16 % 2)) * 0.25 * two[size(book_iq2_s.entries, index)];
            return ((p[34 + e] >> (i % 8)) & 1) != 0 ? -m : m;
        }
        case format::iq3_xxs: {
            const uint32_t rest = word(p + 66 + 4 * b);
            const double   m    = (0.5 + (rest >> 28)) * 0.5 * three[size(book_iq3_xxs.entries, p[2 + i / 4])];
            return negative((rest >> (7 * (e % 4))) & 127) ? -m : m;
        }
        case format::iq1_s: {
            const int high  = p[34 + 2 * b] | (p[35 + 2 * b] << 8);
            const int index = p[2 + e] | (((high >> (e % 4 * 3)) & 7) << 8);
            return (1 + 2 * ((high >> 12) & 7)) *
                   (size(book_iq1.entries, index) - 1 + (high >> 15 != 0 ? -0.125 : 0.125));
        }
        case format::iq1_m: {
            const int high  = nibble(p[32 + e / 2], e % 2);
            const int scale = ((p[48 + i / 64 * 2] | (p[49 + i / 64 * 2] << 8)) >> (i / 16 % 4 * 3)) & 7;
            const int index = p[e] | ((high & 7) << 8);
            return (1 + 2 * scale) * (size(book_iq1.entries, index) - 1 + (high >> 3 != 0 ? -0.125 : 0.125));
        }
        default: { // IQ3_S
            const int    index = p[2 + i / 4] | (((p[66 + b] >> (i / 4 % 8)) & 1) << 8);
            const double m     = (1 + 2 * nibble(p[106 + b / 2], b % 2)) * (1 + 2 * size(book_iq3_s.entries, index));
            return ((p[74 + e] >> (i % 8)) & 1) != 0 ? -m : m;
        }
    }
}

} // namespace
