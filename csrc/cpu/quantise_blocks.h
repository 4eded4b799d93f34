// Floats to blocks of 4-bit codes, 16 blocks side by side: a lane each, so that compilers make vectors of every loop.
// Built once per instruction set, with equal bits: a lane's sums have one order.
#pragma once

#include <cmath>
#include <cstring>

#include "float16.h"
#include "format.h"

namespace duo::cpu {
namespace {

constexpr int n_group      = 16;                                   // blocks
constexpr int n_block_file = traits_of(format::q4_0).n_file_bytes; // the same for both formats

// Scales to try: the largest number becomes the outermost value, or so much of it.
constexpr float reaches[] = {1.0f, 0.94f, 0.88f, 1.07f, -1.0f, -0.94f, -0.88f, -1.07f};

// The values of 4-bit codes. A number's code is the count of the borders below it.
struct code_book {
    float first;
    float step[15];   // from each value to the next one
    float border[15]; // halfway

    explicit constexpr code_book(const float (&values)[16]) : first(values[0]), step(), border() {
        for (int i = 0; i < 15; ++i) {
            step[i]   = values[i + 1] - values[i];
            border[i] = (values[i + 1] + values[i]) / 2;
        }
    }
};

constexpr code_book of_q4_0({-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7});
constexpr code_book of_iq4_nl({-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113});

using lanes = float[n_group];

// x[i]: number i of each block.
struct block_group {
    alignas(64) lanes x[32];
    alignas(64) lanes most;    // the number of the largest size
    alignas(64) lanes inverse; // of the scale that gives the codes
    alignas(64) lanes scale;   // the best one for these codes
    alignas(64) lanes gain;    // how much smaller than the block's own sum of squares the sum of squared errors is
};

// A block with a number that is not finite gets the scale NaN, and no other is tried.
inline void begin_group(block_group & g) {
    alignas(64) lanes sum = {};
    for (int l = 0; l < n_group; ++l) {
        g.most[l] = g.inverse[l] = g.gain[l] = 0.0f;
    }
    for (const lanes & x : g.x) {
        for (int l = 0; l < n_group; ++l) {
            g.most[l] = std::fabs(x[l]) > std::fabs(g.most[l]) ? x[l] : g.most[l];
            sum[l] += std::fabs(x[l]);
        }
    }
    for (int l = 0; l < n_group; ++l) {
        g.scale[l] = std::isfinite(sum[l]) ? 0.0f : NAN;
        g.most[l]  = std::isfinite(sum[l]) ? g.most[l] : 0.0f;
    }
}

// In a block of smaller numbers the scale's inverse would be infinite; they become zeros.
template <const code_book & book> void try_scale(float reach, block_group & g) {
    alignas(64) lanes inverse;
    alignas(64) lanes xq = {};
    alignas(64) lanes qq = {};
    for (int l = 0; l < n_group; ++l) {
        const float scale = g.most[l] * reach / book.first;
        inverse[l]        = std::fabs(scale) > 1e-30f ? 1.0f / scale : 0.0f;
    }
    for (const lanes & x : g.x) {
        for (int l = 0; l < n_group; ++l) {
            const float at = x[l] * inverse[l];
            float       q  = book.first;
            for (int i = 0; i < 15; ++i) {
                q += at > book.border[i] ? book.step[i] : 0.0f;
            }
            xq[l] += x[l] * q;
            qq[l] += q * q;
        }
    }
    for (int l = 0; l < n_group; ++l) {
        const float scale  = qq[l] > 0.0f ? xq[l] / qq[l] : 0.0f;
        const bool  better = inverse[l] != 0.0f && scale * xq[l] > g.gain[l];
        g.gain[l]          = better ? scale * xq[l] : g.gain[l];
        g.scale[l]         = better ? scale : g.scale[l];
        g.inverse[l]       = better ? inverse[l] : g.inverse[l];
    }
}

// Writes n blocks: a scale of half precision, then codes i and i + 16 in a byte.
template <const code_book & book> void write_group(const block_group & g, int n, uint8_t * file) {
    alignas(64) int32_t code[32][n_group] = {};
    for (int k = 0; k < 32; ++k) {
        for (int l = 0; l < n_group; ++l) {
            const float at = g.x[k][l] * g.inverse[l];
            for (int i = 0; i < 15; ++i) {
                code[k][l] += at > book.border[i] ? 1 : 0;
            }
        }
    }
    for (int l = 0; l < n; ++l, file += n_block_file) {
        const uint16_t d = half_of_float(g.scale[l]);
        std::memcpy(file, &d, 2);
        for (int k = 0; k < 16; ++k) {
            file[2 + k] = uint8_t(code[k][l] | (code[k + 16][l] << 4));
        }
    }
}

template <const code_book & book> void quantise_in(const float * x, int64_t n_blocks, uint8_t * file) {
    block_group g;
    for (int64_t b = 0; b < n_blocks; b += n_group) {
        const int n = int(n_blocks - b < n_group ? n_blocks - b : n_group);
        for (int k = 0; k < 32; ++k) {
            for (int l = 0; l < n_group; ++l) {
                g.x[k][l] = l < n ? x[(b + l) * 32 + k] : 0.0f;
            }
        }
        begin_group(g);
        for (const float reach : reaches) {
            try_scale<book>(reach, g);
        }
        write_group<book>(g, n, file + b * n_block_file);
    }
}

// A quantise_fn.
inline void quantise_blocks(format f, const float * x, int64_t n_blocks, uint8_t * file) {
    if (f == format::q4_0) {
        quantise_in<of_q4_0>(x, n_blocks, file);
    } else {
        quantise_in<of_iq4_nl>(x, n_blocks, file);
    }
}

} // namespace
} // namespace duo::cpu
