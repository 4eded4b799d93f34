// The first half of attend.h: the scores of cells, and the weights that they become.
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
        const uint8_t * k = t.k + size_t(cells[i]) * a.stride.k_cell;
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
    t.rows[r].sum = 0.0f;
}

} // namespace
} // namespace duo::cpu
