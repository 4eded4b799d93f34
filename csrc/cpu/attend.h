// The attention kernel, written over a vector type like panel.h. It uses the type's load, load_f16, store, zero,
// broadcast_f, add, mul and fma, and its lane_sums if it has one.
//
// It walks twice over the cells that any of the rows sees: first for scores, then for values. So the largest score is
// known before the first value is weighed. No sum has to be rescaled, and each sum is made cell by cell.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "attend_math.h"
#include "attention.h"
#include "base/compiler.h"

namespace duo::cpu {
namespace {

// The part of the attention for rows of one key head.
struct attended {
    int             n_rows;
    const float *   q[n_rows_together];
    float *         out[n_rows_together];
    const uint8_t * mask[n_rows_together]; // mask of the row's token; nullptr: none
    float           slope[n_rows_together];
    float           sink[n_rows_together];
    const uint8_t * k;
    const uint8_t * v;

    float *   keys;   // [n_cells_at_once][n_k]
    float *   scores; // [n_rows_together][stride]
    int64_t   stride;
    int32_t * cells; // cells that at least one row sees, in the order of the sums
    int64_t   n_cells;
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

constexpr uint16_t half_minus_infinity = 0xfc00;

// Lists the cells that at least one row sees.
inline void list_cells(const attention & a, attended & t, uint8_t * seen) {
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
    t.n_cells = 0;
    for (size_t i = 0; i < n; ++i) {
        const int32_t c    = a.order == nullptr ? int32_t(i) : a.order[i];
        t.cells[t.n_cells] = c;
        t.n_cells += seen[c];
    }
}

// Loads the keys of n listed cells as floats, [n_k / L][n_cells_at_once][L]; zeros after them.
template <class V> inline void load_keys(const attention & a, const attended & t, int64_t from, int n) {
    if (n < n_cells_at_once) {
        std::memset(t.keys, 0, size_t(n_cells_at_once * a.n_k) * sizeof(float));
    }
    for (int i = 0; i < n; ++i) {
        const uint8_t * k = t.k + size_t(t.cells[from + i]) * a.k_cell;
        for (int64_t j = 0; j < a.n_k; j += V::L) {
            V::store(t.keys + j * n_cells_at_once + i * V::L, V::load_f16(k + 2 * j));
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

// Computes the scores of all rows, and each row's largest score.
template <class V> inline void score(const attention & a, const attended & t, float * most) {
    alignas(64) float high[n_rows_together][n_cells_at_once];
    std::fill_n(high[0], n_rows_together * n_cells_at_once, minus_infinity);
    for (int64_t from = 0; from < t.n_cells; from += n_cells_at_once) {
        const int n = int(std::min<int64_t>(n_cells_at_once, t.n_cells - from));
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
            hide(s, mask, t.slope[r], high[r]);
        }
    }
    for (int r = 0; r < t.n_rows; ++r) {
        most[r] = std::max(*std::max_element(high[r], high[r] + n_cells_at_once), t.sink[r]);
    }
}

// out[R rows][C vectors from column] += weights of cells [from, to) times their values. with_sum: also adds the
// weights, in all lanes of sums.
template <class V, int R, int C, bool with_sum>
inline void weigh_some(const attention & a, const attended & t, int row, int64_t column, int64_t from, int64_t to,
                       float (*sums)[V::L]) {
    typename V::floats acc[R][C];
    typename V::floats sum[R];
    DUO_UNROLL(4)
    for (int r = 0; r < R; ++r) {
        sum[r] = V::load(sums[row + r]);
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
            V::store(sums[row + r], sum[r]);
        }
        DUO_UNROLL(4)
        for (int c = 0; c < C; ++c) {
            V::store(t.out[row + r] + column + c * V::L, acc[r][c]);
        }
    }
}

template <class V, int R>
inline void weigh_columns(const attention & a, const attended & t, int row, int64_t from, int64_t to,
                          float (*sums)[V::L]) {
    const auto some = [&]<int C>(int64_t column) {
        column == 0 ? weigh_some<V, R, C, true>(a, t, row, column, from, to, sums)
                    : weigh_some<V, R, C, false>(a, t, row, column, from, to, sums);
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

constexpr int64_t n_cells_weighed = 64; // the values of this many cells stay in the first-level cache for all rows

template <class V> void attend_rows(const attention & a, int64_t kv_head, int64_t row0, int n_rows, float * scratch) {
    const attention_scratch parts(a);
    attended                t;
    t.n_rows = n_rows;
    t.k      = a.k + size_t(kv_head) * a.k_head;
    t.v      = a.v + size_t(kv_head) * a.v_head;
    t.keys   = scratch;
    t.scores = t.keys + parts.keys;
    t.stride = parts.cells;
    t.cells  = reinterpret_cast<int32_t *>(t.scores + parts.scores);
    for (int r = 0; r < n_rows; ++r) {
        const int64_t token = (row0 + r) / a.group();
        const int64_t head  = kv_head * a.group() + (row0 + r) % a.group();
        t.q[r]     = reinterpret_cast<const float *>(a.q + size_t(token) * a.q_token + size_t(head) * a.q_head);
        t.out[r]   = a.out + (token * a.n_heads + head) * a.n_v;
        t.mask[r]  = a.mask == nullptr ? nullptr : a.mask + size_t(token) * a.mask_token;
        t.slope[r] = slope_of(a, head);
        t.sink[r]  = a.sinks == nullptr ? minus_infinity : a.sinks[head];
        std::memset(t.out[r], 0, size_t(a.n_v) * sizeof(float));
    }
    list_cells(a, t, reinterpret_cast<uint8_t *>(t.cells + parts.cells));

    float most[n_rows_together];
    score<V>(a, t, most);
    const int64_t n_scores = (t.n_cells + n_cells_at_once - 1) / n_cells_at_once * n_cells_at_once;
    for (int r = 0; r < n_rows; ++r) {
        exponentials(t.scores + r * t.stride, n_scores, most[r] == minus_infinity ? 0.0f : most[r]);
    }

    alignas(64) float sums[n_rows_together][V::L] = {};
    for (int64_t from = 0; from < t.n_cells; from += n_cells_weighed) {
        const int64_t to = std::min(from + n_cells_weighed, t.n_cells);
        int           r  = 0;
        for (; r + 4 <= n_rows; r += 4) {
            weigh_columns<V, 4>(a, t, r, from, to, sums);
        }
        if (n_rows - r >= 2) {
            weigh_columns<V, 2>(a, t, r, from, to, sums);
            r += 2;
        }
        if (r < n_rows) {
            weigh_columns<V, 1>(a, t, r, from, to, sums);
        }
    }
    for (int r = 0; r < n_rows; ++r) {
        const float sum   = sums[r][0] + (a.sinks == nullptr ? 0.0f : std::exp(t.sink[r] - most[r]));
        const float share = sum == 0 ? 0.0f : 1.0f / sum; // 0: the row sees no cell
        for (int64_t j = 0; j < a.n_v; ++j) {
            t.out[r][j] *= share;
        }
    }
}

} // namespace
} // namespace duo::cpu
