// The second half of attend.h: the sums of weighed values.
#pragma once

#include <algorithm>
#include <span>

#include "attended.h"
#include "attention.h"
#include "base/compiler.h"

namespace duo::cpu {
namespace {

// out[R rows][C vectors from column] += weights of n listed cells times their values. with_sum: also adds the weights.
template <class V, int R, int C, bool with_sum>
inline void weigh_some(const attention & a, attended & t, int row, int64_t column, const int32_t * cells, int64_t from,
                       int n) {
    typename V::floats acc[R][C];
    typename V::floats sum[R];
    DUO_UNROLL(4)
    for (int r = 0; r < R; ++r) {
        sum[r] = V::broadcast_f(&t.rows[row + r].sum);
        DUO_UNROLL(4)
        for (int c = 0; c < C; ++c) {
            acc[r][c] = V::load(t.out[row + r] + column + c * V::L);
        }
    }
    const float * const w = t.scores + row * t.stride + from;
    for (int i = 0; i < n; ++i) {
        const uint8_t *    v = t.v + size_t(cells[i]) * a.stride.v_cell + 2 * column;
        typename V::floats value[C];
        DUO_UNROLL(4)
        for (int c = 0; c < C; ++c) {
            value[c] = V::load_f16(v + 2 * c * V::L);
        }
        DUO_UNROLL(4)
        for (int r = 0; r < R; ++r) {
            const typename V::floats p = V::broadcast_f(w + r * t.stride + i);
            if constexpr (with_sum) {
                sum[r] = V::add(sum[r], p);
            }
            DUO_UNROLL(4)
            for (int c = 0; c < C; ++c) {
                acc[r][c] = V::fma(p, value[c], acc[r][c]);
            }
        }
    }
    DUO_UNROLL(4)
    for (int r = 0; r < R; ++r) {
        if constexpr (with_sum) {
            alignas(64) float lanes[V::L]; // all the same
            V::store(lanes, sum[r]);
            t.rows[row + r].sum = lanes[0];
        }
        DUO_UNROLL(4)
        for (int c = 0; c < C; ++c) {
            V::store(t.out[row + r] + column + c * V::L, acc[r][c]);
        }
    }
}

template <class V, int R>
inline void weigh_columns(const attention & a, attended & t, int row, const int32_t * cells, int64_t from, int n) {
    const auto some = [&]<int C>(int64_t column) {
        column == 0 ? weigh_some<V, R, C, true>(a, t, row, column, cells, from, n)
                    : weigh_some<V, R, C, false>(a, t, row, column, cells, from, n);
    };
    int64_t column = t.begin;
    if constexpr (V::L != 8) { // these types have 32 registers, not 16
        for (; column + 4 * V::L <= t.end; column += 4 * V::L) {
            some.template operator()<4>(column);
        }
    }
    for (; column + 2 * V::L <= t.end; column += 2 * V::L) {
        some.template operator()<2>(column);
    }
    for (; column < t.end; column += V::L) {
        some.template operator()<1>(column);
    }
}

// Adds the weighed values of n listed cells.
template <class V> inline void weigh(const attention & a, attended & t, const int32_t * cells, int64_t from, int n) {
    int r = 0;
    for (; r + 4 <= t.n_rows; r += 4) {
        weigh_columns<V, 4>(a, t, r, cells, from, n);
    }
    if (t.n_rows - r >= 2) {
        weigh_columns<V, 2>(a, t, r, cells, from, n);
        r += 2;
    }
    if (r < t.n_rows) {
        weigh_columns<V, 1>(a, t, r, cells, from, n);
    }
}

// Adds the weighed values of all cells, in the columns that this thread takes.
template <class V>
inline void weigh_cells(const attention & a, std::span<attended> sets, const attention_memory & m, int64_t n_cells) {
    for (const attended & t : sets) {
        for (int r = 0; r < t.n_rows; ++r) {
            std::fill(t.out[r] + t.begin, t.out[r] + t.end, 0.0f);
        }
    }
    for (int64_t from = 0; from < n_cells; from += n_cells_at_once) {
        for (attended & t : sets) {
            weigh<V>(a, t, m.cells + from, from, int(std::min<int64_t>(n_cells_at_once, n_cells - from)));
        }
    }
}

} // namespace
} // namespace duo::cpu
