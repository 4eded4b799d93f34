// What is known about a pair before it has computed anything: where it is placed, and what passes should cost.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core_split.h"

namespace duo {

// Steps of a draft that makes n_of_step levels in each.
constexpr int32_t steps_for(int32_t n_levels, int32_t n_of_step) {
    return (n_levels + n_of_step - 1) / n_of_step;
}

struct pair_prior {
    // Both models compute on the same cores or GPU, so they slow each other down when both work.
    bool shared = false;
    // Ways to split those cores while both work, the draft's share ascending; empty: each keeps its threads. `split`:
    // the likely one.
    std::vector<core_split> splits{};
    size_t                  split = 0;
    // Points (rows, microseconds) of a target pass by itself, rows ascending; empty: unknown.
    std::vector<std::pair<int32_t, double>> pass_us{};
    double                                  step_us = 0.0; // draft step over one node by itself; 0: unknown
    int32_t n_levels = 1;     // guesses one after the other that such a step gives (model_facts::n_levels)
    bool    windows  = false; // the draft need not read all of a prompt (draft_window.h)

    // Microseconds of a pass over n rows, linear between the points and on along the last two; 0: unknown.
    [[nodiscard]] double pass(int32_t n_rows) const;
    // Throws duo::error if rows or shares do not ascend, or if a number makes no sense.
    void check() const;
};

} // namespace duo
