// The attention kernel, written over a vector type like panel.h. It uses the type's load, load_f16, store, zero,
// broadcast_f, add, mul and fma, and its lane_sums if it has one.
//
// It walks twice over the cells that any of the rows sees: first for scores, then for values. So the largest score is
// known before the first value is weighed. No sum has to be rescaled, and each sum is made cell by cell.
//
// A cell's keys lie side by side for all key heads, and so do its values. So the heads of a piece are taken together, a
// few cells at a time. One head after the other would touch every page of the cache once a head. The threads of a team
// share the cells for the scores, the rows for the weights, and the columns for the values.
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
template <class V>
inline void load_keys(const attention & a, const attended & t, const int32_t * cells, int n, float * keys) {
    const int64_t n_k = a.n_k; // outside the loops: the compiler cannot know that a store leaves it alone
    if (n < n_cells_at_once) {
        std::memset(keys, 0, size_t(n_cells_at_once * n_k) * sizeof(float));
    }
    for (int i = 0; i < n; ++i) {
        const uint8_t * k = t.k + size_t(cells[i]) * a.k_cell;
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
template <class V> inline void load_mask(const uint8_t * of_row, const int32_t * c, int n, float * mask) {
    const auto *         m = reinterpret_cast<const uint16_t *>(of_row);
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

// Masks scores. s: products in, scores out.
inline void hide(float * __restrict s, const float * __restrict mask, float slope) {
    DUO_UNROLL(1) // 16 copies of the step would not become a vector
    for (int i = 0; i < n_cells_at_once; ++i) {
        s[i] = mask[i] == minus_infinity ? minus_infinity : s[i] + slope * mask[i];
    }
}

// Computes the scores of n listed cells, at most n_cells_at_once, of which the first is number `from`.
template <class V>
inline void score(const attention & a, const attended & t, const float * keys, const int32_t * cells, int64_t from,
                  int n) {
    alignas(64) float mask[n_cells_at_once];
    for (int r = 0; r < t.n_rows; ++r) {
        if (r == 0 || t.mask[r] != t.mask[r - 1]) {
            load_mask<V>(t.mask[r], cells, n, mask);
        }
        float * s = t.scores + r * t.stride + from;
        for (int c = 0; c < n_cells_at_once; c += V::L) {
            typename V::floats acc[V::L];
            DUO_UNROLL(16)
            for (int i = 0; i < V::L; ++i) {
                acc[i] = V::zero();
            }
            const float * key = keys + c * V::L;
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
        hide(s, mask, t.slope[r]);
    }
}

// Makes weights of a row's scores.
inline void weights_of_scores(attended & t, int r, int64_t n_cells) {
    const int64_t     n = (n_cells + n_cells_at_once - 1) / n_cells_at_once * n_cells_at_once;
    float * const     s = t.scores + r * t.stride;
    alignas(64) float high[n_cells_at_once];
    std::fill_n(high, n_cells_at_once, t.sink[r]);
    for (int64_t from = 0; from < n; from += n_cells_at_once) {
        DUO_UNROLL(1)
        for (int i = 0; i < n_cells_at_once; ++i) {
            high[i] = s[from + i] > high[i] ? s[from + i] : high[i];
        }
    }
    t.rows[r].most = *std::max_element(high, high + n_cells_at_once);
    exponentials(s, n, t.rows[r].most == minus_infinity ? 0.0f : t.rows[r].most);
}

// out[R rows][C vectors from column] += weights of n listed cells times their values. with_sum: also adds the weights,
// in all lanes of t.sums.
template <class V, int R, int C, bool with_sum>
inline void weigh_some(const attention & a, attended & t, int row, int64_t column, const int32_t * cells, int64_t from,
                       int n) {
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
    const float * const w = t.scores + row * t.stride + from;
    for (int i = 0; i < n; ++i) {
        const uint8_t *    v = t.v + size_t(cells[i]) * a.v_cell + 2 * column;
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

// Divides the sums of values by the sum of weights.
inline void divide(const attention & a, const attended & t, int r) {
    const float sum   = t.rows[r].sum + (a.sinks == nullptr ? 0.0f : std::exp(t.sink[r] - t.rows[r].most));
    const float share = sum == 0 ? 0.0f : 1.0f / sum; // 0: the row sees no cell
    for (int64_t j = 0; j < a.n_v; ++j) {
        t.out[r][j] *= share;
    }
}

// Calls take(set, row) for the rows that this thread takes.
template <class Take> inline void each_row(const std::span<attended> sets, const attention_team & team, Take && take) {
    int i = 0;
    for (attended & t : sets) {
        for (int r = 0; r < t.n_rows; ++r) {
            if (i++ % team.n == team.i) {
                take(t, r);
            }
        }
    }
}

// Computes the scores of the cells that this thread takes.
template <class V>
inline void score_cells(const attention & a, std::span<attended> sets, const attention_memory & m,
                        const attention_team & team, int64_t n_cells) {
    constexpr int64_t n_run = 8 * n_cells_at_once; // cells that a thread takes one after the other
    for (int64_t run = team.i * n_run; run < n_cells; run += team.n * n_run) {
        for (int64_t from = run; from < std::min(run + n_run, n_cells); from += n_cells_at_once) {
            const int       n      = int(std::min<int64_t>(n_cells_at_once, n_cells - from));
            const uint8_t * loaded = nullptr;
            for (const attended & t : sets) {
                if (t.k != loaded) {
                    load_keys<V>(a, t, m.cells + from, n, m.keys);
                    loaded = t.k;
                }
                score<V>(a, t, m.keys, m.cells + from, from, n);
            }
        }
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
    for (const attended & t : sets) {
        for (int r = 0; r < t.n_rows && t.begin == 0; ++r) {
            t.rows[r].sum = t.sums[r][0];
        }
    }
}

template <class V>
void attend_rows(const attention & a, const attention_piece & p, const attention_memory & m,
                 const attention_team & team) {
    attended all[n_sets_together];
    int      n_sets = 0;
    for (int h = 0; h < p.n_heads; ++h) {
        for (int first = 0; first < p.n_rows; first += n_rows_together) {
            all[n_sets] = set_of(a, p, m, h, first);
            deal_columns(a, p, team, all[n_sets++], h);
        }
    }
    const std::span<attended> sets(all, size_t(n_sets));
    const auto                has_columns = [](const attended & t) { return t.begin < t.end; };
    const auto                first       = std::find_if(sets.begin(), sets.end(), has_columns);
    const std::span<attended> dealt(first, std::find_if_not(first, sets.end(), has_columns));

    const int64_t n_cells = list_cells(a, p, m);
    score_cells<V>(a, sets, m, team, n_cells);
    team.wait();
    each_row(sets, team, [&](attended & t, int r) { weights_of_scores(t, r, n_cells); });
    team.wait();
    weigh_cells<V>(a, dealt, m, n_cells);
    team.wait();
    each_row(sets, team, [&](attended & t, int r) { divide(a, t, r); });
}

} // namespace
} // namespace duo::cpu
