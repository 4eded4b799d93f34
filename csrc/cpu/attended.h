// What the attention kernel walks with: the rows of a key head, and the cells that they see.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "attend_math.h"
#include "attention.h"

namespace duo::cpu {
namespace {

// The rows of one key head.
struct attended {
    int             n_rows = 0;
    const float *   q[n_rows_together];
    float *         out[n_rows_together];
    const uint8_t * mask[n_rows_together]; // mask of the row's token; nullptr: none
    float           slope[n_rows_together];
    float           sink[n_rows_together];
    const uint8_t * k;
    const uint8_t * v;

    float *         keys;   // [n_cells_at_once][n_k]
    float *         scores; // [n_rows][stride]
    int64_t         stride; // of the scores of a row
    const int32_t * cells;  // cells that at least one row sees, in the order of the sums
    int64_t         n_cells;

    alignas(64) float high[n_rows_together][n_cells_at_once]; // the largest scores so far, lane by lane
    alignas(64) float sums[n_rows_together][n_cells_at_once]; // of the weights, the same in each of V::L lanes
    float most[n_rows_together];                              // the largest score
};

// ALiBi's factor of a head (arXiv 2108.12409; for numbers of heads that are not powers of two, as in llama.cpp's
// ops.cpp).
inline float slope_of(const attention & a, int64_t head) {
    if (a.max_bias <= 0) {
        return 1.0f;
    }
    const auto  n    = int64_t(std::bit_floor(uint64_t(a.n_heads)));
    const float base = std::pow(2.0f, -(head < n ? a.max_bias : a.max_bias / 2) / float(n));
    return std::pow(base, float(head < n ? head + 1 : 2 * (head - n) + 1));
}

inline attended rows_of(const attention & a, const attention_piece & p, int64_t kv_head) {
    attended t;
    t.n_rows = p.n_rows;
    t.k      = a.k + size_t(kv_head) * a.k_head;
    t.v      = a.v + size_t(kv_head) * a.v_head;
    for (int r = 0; r < p.n_rows; ++r) {
        const int64_t token = (p.row + r) / a.group();
        const int64_t head  = kv_head * a.group() + (p.row + r) % a.group();
        t.q[r]     = reinterpret_cast<const float *>(a.q + size_t(token) * a.q_token + size_t(head) * a.q_head);
        t.out[r]   = a.out + (token * a.n_heads + head) * a.n_v;
        t.mask[r]  = a.mask == nullptr ? nullptr : a.mask + size_t(token) * a.mask_token;
        t.slope[r] = slope_of(a, head);
        t.sink[r]  = a.sinks == nullptr ? minus_infinity : a.sinks[head];
        std::memset(t.out[r], 0, size_t(a.n_v) * sizeof(float));
        std::fill_n(t.high[r], n_cells_at_once, minus_infinity);
        std::fill_n(t.sums[r], n_cells_at_once, 0.0f);
    }
    return t;
}

constexpr uint16_t half_minus_infinity = 0xfc00;

// Lists the cells that at least one row sees, and returns how many there are. seen: [n_cells] of scratch memory.
inline int64_t list_cells(const attention & a, const attended & t, int32_t * cells, uint8_t * seen) {
    const auto n = size_t(a.n_cells);
    std::memset(seen, t.mask[0] == nullptr ? 1 : 0, n);
    for (int r = 0; r < t.n_rows && t.mask[0] != nullptr; ++r) {
        if (r > 0 && t.mask[r] == t.mask[r - 1]) {
            continue;
        }
        const auto * m = reinterpret_cast<const uint16_t *>(t.mask[r]);
        for (size_t i = 0; i < n; ++i) {
            seen[i] = uint8_t(seen[i] | (m[i] != half_minus_infinity));
        }
    }
    int64_t n_seen = 0;
    for (size_t i = 0; i < n; ++i) {
        const int32_t c = a.order == nullptr ? int32_t(i) : a.order[i];
        cells[n_seen]   = c;
        n_seen += seen[c];
    }
    return n_seen;
}

} // namespace
} // namespace duo::cpu
