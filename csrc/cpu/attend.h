// The attention kernel, written over a vector type like panel.h. It uses the type's load, load_f16, store, zero,
// broadcast_f, add, mul and fma, and its lane_sums if it has one.
//
// It walks twice over the cells that any of the rows sees: first for scores, then for values. So the largest score is
// known before the first value is weighed. No sum has to be rescaled, and each sum is made cell by cell.
//
// A cell's keys lie side by side for all key heads, and so do its values. So the heads of a piece are taken together, a
// few cells at a time. One head after the other would touch every page of the cache once for each head. The threads of
// a team share the cells for the scores, the rows for the weights, and the columns for the values.
#pragma once

#include <algorithm>
#include <cassert>
#include <cmath>
#include <span>

#include "attend_scores.h"
#include "attend_values.h"
#include "attended.h"
#include "attention.h"

namespace duo::cpu {
namespace {

// Divides the sums of values by the sum of weights. Returns whether all results are numbers.
inline bool divide(const attention & a, const attended & t, int r) {
    const float sum   = t.rows[r].sum + (a.sinks == nullptr ? 0.0f : std::exp(t.sink[r] - t.rows[r].most));
    const float share = sum == 0 ? 0.0f : 1.0f / sum; // 0: the row sees no cell
    float       zero  = 0;                            // times infinity or NaN is NaN
    for (int64_t j = 0; j < a.n_v; ++j) {
        t.out[r][j] *= share;
        zero += 0.0f * t.out[r][j];
    }
    return zero == 0;
}

// Calls take(set, row) for the rows that this thread takes.
template <class Take> inline void each_row(std::span<attended> sets, const attention_team & team, Take && take) {
    int i = 0;
    for (attended & t : sets) {
        for (int r = 0; r < t.n_rows; ++r) {
            if (i++ % team.n == team.i) {
                take(t, r);
            }
        }
    }
}

template <class V>
void attend_rows(const attention & a, const attention_piece & p, const attention_memory & m,
                 const attention_team & team) {
    assert(p.sets() <= n_sets_together);
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
    const std::span<attended> dealt(first, std::find_if_not(first, sets.end(), has_columns)); // columns for this thread

    const int64_t n_cells = list_cells(a, p, m);
    score_cells<V>(a, sets, m, team, n_cells);
    team.wait();
    each_row(sets, team, [&](attended & t, int r) { weights_of_scores(t, r, n_cells); });
    team.wait();
    weigh_cells<V>(a, dealt, m, n_cells);
    team.wait();
    const bool of_one_token = p.row / a.group() == (p.row + p.n_rows - 1) / a.group();
    each_row(sets, team, [&](attended & t, int r) {
        // A hidden cell has weight 0, and 0 times infinity is NaN: then only the cells that the row sees count.
        if (!divide(a, t, r) && !of_one_token) {
            const attention_memory own{t.scores + r * t.stride, t.stride, t.rows + r, m.keys, m.cells, m.seen};
            attend_rows<V>(a, {t.kv_head, t.row + r, 1, 1}, own, {0, 1});
        }
    });
}

} // namespace
} // namespace duo::cpu
