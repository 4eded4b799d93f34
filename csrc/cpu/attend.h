// The attention kernel, written over a vector type like panel.h. It uses the type's load, load_f16, store, zero,
// broadcast_f, add, mul and fma, and its lane_sums if it has one.
//
// It walks twice over the cells that any of the rows sees: first for scores, then for values. So the largest score is
// known before the first value is weighed. No sum has to be rescaled, and each sum is made cell by cell.
//
// A cell's keys lie side by side for all key heads, and so do its values. So the heads of a piece are taken together, a
// few cells at a time. One head after the other would touch every page of the cache once a head.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "attend_math.h"
#include "attended.h"
#include "attention.h"
#include "base/compiler.h"

namespace duo::cpu {
namespace {

// Loads the keys of n listed cells as floats, [n_k / L][n_cells_at_once][L]; zeros after them.
template <class V> inline void load_keys(const attention & a, const attended & t, int64_t from, int n) {
    if (n < n_cells_at_once) {
        std::memset(t.keys, 0, size_t(n_cells_at_once * a.n_k) * sizeof(float));
    }
    const int64_t n_k  = a.n_k;
    float * const keys = t.keys; // outside the loops: the compiler cannot know that a store leaves these alone
    for (int i = 0; i < n; ++i) {
        const uint8_t * k = t.k + size_t(t.cells[from + i]) * a.k_cell;
        for (int64_t j = 0; j < n_k; j += V::L) {
            V::store(keys + j * n_cells_at_once + i * V::L, V::load_f16(k + 2 * j));
        }
    }
}

inline bool contiguous(const int32_t * cells) {
    int32_t other = 0; // without a branch for each cell
    for (int i = 1; i < n_cells_at_once; ++i) {
        other |= cells[i] - cells[0] - i;
    }
    return other == 0;
}

// Loads a row's mask for n listed cells; -infinity after them.
template <class V> inline void load_mask(const attended & t, int row, int64_t from, int n, float * mask) {
    const auto *         m = reinterpret_cast<const uint16_t *>(t.mask[row]);
    const int32_t *      c = t.cells + from;
    alignas(64) uint16_t half[n_cells_at_once];
    if (m != nullptr && n == n_cells_at_once && contiguous(c)) { // the usual case
        m += c[0];
    } else {
        for (int i = 0; i < n_cells_at_once; ++i) {
            half[i] = i >= n ? half_minus_infinity : m == nullptr ? uint16_t(0) : m[c[i]];
        }
        m = half;
    }
    for (int i = 0; i < n_cells_at_once; i += V::L) {
        V::store(mask + i, V::load_f16(reinterpret_cast<const uint8_t *>(m + i)));
    }
}

// Masks scores. s: products in, scores out. high: the largest score so far, lane by lane.
inline void hide(float * __restrict s, const float * __restrict mask, float slope, float * __restrict high) {
    DUO_UNROLL(1) // 16 copies of the step would not become a vector
    for (int i = 0; i < n_cells_at_once; ++i) {
        const float x = mask[i] == minus_infinity ? minus_infinity : s[i] + slope * mask[i];
        s[i]          = x;
        high[i]       = x > high[i] ? x : high[i];
    }
}

// Computes the scores of n listed cells, at most n_cells_at_once.
template <class V> inline void score(const attention & a, attended & t, int64_t from, int n) {
    load_keys<V>(a, t, from, n);
    alignas(64) float mask[n_cells_at_once];
    for (int r = 0; r < t.n_rows; ++r) {
        if (r == 0 || t.mask[r] != t.mask[r - 1]) {
            load_mask<V>(t, r, from, n, mask);
        }
        float * s = t.scores + r * t.stride + from;
        for (int c = 0; c < n_cells_at_once; c += V::L) {
            typename V::floats acc[V::L];
            DUO_UNROLL(16)
            for (int i = 0; i < V::L; ++i) {
                acc[i] = V::zero();
            }
            const float * key = t.keys + c * V::L;
            const float * q   = t.q[r];
            for (int64_t j = 0; j < a.n_k; j += V::L, key += n_cells_at_once * V::L) {
                const typename V::floats x = V::load(q + j);
                DUO_UNROLL(16)
                for (int i = 0; i < V::L; ++i) {
                    acc[i] = V::fma(x, V::load(key + i * V::L), acc[i]);
                }
            }
            V::store(s + c, V::mul(lane_sums<V>(acc), V::broadcast_f(&a.scale)));
        }
        if (a.softcap != 0) {
            for (int i = 0; i < n_cells_at_once; ++i) {
                s[i] = a.softcap * std::tanh(s[i] / a.softcap);
            }
        }
        hide(s, mask, t.slope[r], t.high[r]);
    }
}

// Makes weights of the scores.
inline void weights_of_scores(attended & t) {
    const int64_t n = (t.n_cells + n_cells_at_once - 1) / n_cells_at_once * n_cells_at_once;
    for (int r = 0; r < t.n_rows; ++r) {
        t.most[r] = std::max(*std::max_element(t.high[r], t.high[r] + n_cells_at_once), t.sink[r]);
        exponentials(t.scores + r * t.stride, n, t.most[r] == minus_infinity ? 0.0f : t.most[r]);
    }
}

// out[R rows][C vectors from column] += weights of cells [from, to) times their values. with_sum: also adds the
// weights, in all lanes of t.sums.
template <class V, int R, int C, bool with_sum>
inline void weigh_some(const attention & a, attended & t, int row, int64_t column, int64_t from, int64_t to) {
    typename V::floats acc[R][C];
    typename V::floats sum[R];
    DUO_UNROLL(4)
    for (int r = 0; r < R; ++r) {
        sum[r] = V::load(t.sums[row + r]);
        DUO_UNROLL(4)
        for (int c = 0; c < C; ++c) {
            acc[r][c] = V::load(t.out[row + r] + column + c * V::L);
        }
    }
    const float * const w = t.scores + row * t.stride;
    for (int64_t i = from; i < to; ++i) {
        const uint8_t *    v = t.v + size_t(t.cells[i]) * a.v_cell + 2 * column;
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
            V::store(t.sums[row + r], sum[r]);
        }
        DUO_UNROLL(4)
        for (int c = 0; c < C; ++c) {
            V::store(t.out[row + r] + column + c * V::L, acc[r][c]);
        }
    }
}

template <class V, int R>
inline void weigh_columns(const attention & a, attended & t, int row, int64_t from, int64_t to) {
    const auto some = [&]<int C>(int64_t column) {
        column == 0 ? weigh_some<V, R, C, true>(a, t, row, column, from, to)
                    : weigh_some<V, R, C, false>(a, t, row, column, from, to);
    };
    int64_t column = 0;
    if constexpr (V::L != 8) { // these types have 32 registers, not 16
        for (; column + 4 * V::L <= a.n_v; column += 4 * V::L) {
            some.template operator()<4>(column);
        }
    }
    for (; column + 2 * V::L <= a.n_v; column += 2 * V::L) {
        some.template operator()<2>(column);
    }
    for (; column < a.n_v; column += V::L) {
        some.template operator()<1>(column);
    }
}

// Adds the weighed values of the listed cells [from, to).
template <class V> inline void weigh(const attention & a, attended & t, int64_t from, int64_t to) {
    int r = 0;
    for (; r + 4 <= t.n_rows; r += 4) {
        weigh_columns<V, 4>(a, t, r, from, to);
    }
    if (t.n_rows - r >= 2) {
        weigh_columns<V, 2>(a, t, r, from, to);
        r += 2;
    }
    if (r < t.n_rows) {
        weigh_columns<V, 1>(a, t, r, from, to);
    }
}

// Divides the sums of values by the sum of weights.
inline void divide(const attention & a, const attended & t) {
    for (int r = 0; r < t.n_rows; ++r) {
        const float sum   = t.sums[r][0] + (a.sinks == nullptr ? 0.0f : std::exp(t.sink[r] - t.most[r]));
        const float share = sum == 0 ? 0.0f : 1.0f / sum; // 0: the row sees no cell
        for (int64_t j = 0; j < a.n_v; ++j) {
            t.out[r][j] *= share;
        }
    }
}

template <class V> void attend_rows(const attention & a, const attention_piece & p, float * scratch) {
    const attention_scratch parts(a);
    float * const           keys    = scratch;
    float * const           scores  = keys + parts.keys;
    auto * const            cells   = reinterpret_cast<int32_t *>(scores + parts.scores);
    int64_t                 n_cells = 0;
    attended                heads[n_heads_together];
    for (int h = 0; h < p.n_heads; ++h) {
        attended & t = heads[h] = rows_of(a, p, p.kv_head + h);
        if (h == 0) {
            n_cells = list_cells(a, t, cells, reinterpret_cast<uint8_t *>(cells + parts.cells));
        }
        t.keys    = keys;
        t.scores  = scores + h * p.n_rows * parts.cells;
        t.stride  = parts.cells;
        t.cells   = cells;
        t.n_cells = n_cells;
    }
    const std::span<attended> all(heads, size_t(p.n_heads));
    for (int64_t from = 0; from < n_cells; from += n_cells_at_once) {
        for (attended & t : all) {
            score<V>(a, t, from, int(std::min<int64_t>(n_cells_at_once, n_cells - from)));
        }
    }
    for (attended & t : all) {
        weights_of_scores(t);
    }
    for (int64_t from = 0; from < n_cells; from += n_cells_at_once) {
        for (attended & t : all) {
            weigh<V>(a, t, from, std::min(from + n_cells_at_once, n_cells));
        }
    }
    for (const attended & t : all) {
        divide(a, t);
    }
}

} // namespace
} // namespace duo::cpu
