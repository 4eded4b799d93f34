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

// A set of rows of one key head.
struct attended {
    int64_t         kv_head, row; // of the first row
    int             n_rows;
    const float *   q[n_rows_together];
    float *         out[n_rows_together];
    const uint8_t * mask[n_rows_together]; // mask of the row's token; nullptr: none
    float           slope[n_rows_together];
    float           sink[n_rows_together];
    const uint8_t * k;
    const uint8_t * v;

    float *         scores; // [n_rows][stride]
    int64_t         stride;
    attention_row * rows; // [n_rows]

    int64_t begin, end; // columns of the values that this thread takes
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

// Rows of the piece's head h, from `first` on.
inline attended set_of(const attention & a, const attention_piece & p, const attention_memory & m, int h, int first) {
    const int64_t in_piece = int64_t(h) * p.n_rows + first;
    attended      t;
    t.kv_head = p.kv_head + h;
    t.row     = p.row + first;
    t.n_rows  = std::min(n_rows_together, p.n_rows - first);
    t.k       = a.k + size_t(t.kv_head) * a.stride.k_head;
    t.v       = a.v + size_t(t.kv_head) * a.stride.v_head;
    t.scores  = m.scores + in_piece * m.stride;
    t.stride  = m.stride;
    t.rows    = m.rows + in_piece;
    for (int r = 0; r < t.n_rows; ++r) {
        const int64_t row   = t.row + r;
        const int64_t token = row / a.group();
        const int64_t head  = t.kv_head * a.group() + row % a.group();
        t.q[r] =
            reinterpret_cast<const float *>(a.q + size_t(token) * a.stride.q_token + size_t(head) * a.stride.q_head);
        t.out[r]   = a.out + (token * a.n_heads + head) * a.n_v;
        t.mask[r]  = a.mask == nullptr ? nullptr : a.mask + size_t(token) * a.stride.mask_token;
        t.slope[r] = slope_of(a, head);
        t.sink[r]  = a.sinks == nullptr ? minus_infinity : a.sinks[head];
    }
    return t;
}

// Deals out the columns of the values: each thread gets neighbours.
inline void deal_columns(const attention & a, const attention_piece & p, const attention_team & team, attended & t,
                         int h) {
    const int64_t per_head = a.n_v / n_columns_dealt;
    const int64_t all      = p.n_heads * per_head;
    const auto    mine     = [&](int i) {
        return std::clamp(all * i / team.n - h * per_head, int64_t(0), per_head) * n_columns_dealt;
    };
    t.begin = mine(team.i);
    t.end   = mine(team.i + 1);
}

constexpr uint16_t half_minus_infinity = 0xfc00;

// Lists the cells that at least one row of the piece sees, in the order of the sums, and returns how many there are.
inline int64_t list_cells(const attention & a, const attention_piece & p, const attention_memory & m) {
    const auto n = size_t(a.n_cells);
    std::memset(m.seen, a.mask == nullptr ? 1 : 0, n);
    const int64_t last = (p.row + p.n_rows - 1) / a.group();
    for (int64_t token = p.row / a.group(); token <= last && a.mask != nullptr; ++token) {
        const auto * mask = reinterpret_cast<const uint16_t *>(a.mask + size_t(token) * a.stride.mask_token);
        for (size_t i = 0; i < n; ++i) {
            m.seen[i] = uint8_t(m.seen[i] | (mask[i] != half_minus_infinity));
        }
    }
    int64_t n_seen = 0;
    for (size_t i = 0; i < n; ++i) {
        const int32_t c = a.order == nullptr ? int32_t(i) : a.order[i];
        m.cells[n_seen] = c;
        n_seen += m.seen[c];
    }
    return n_seen;
}

} // namespace
} // namespace duo::cpu
