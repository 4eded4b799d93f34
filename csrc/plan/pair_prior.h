// What is known about a pair before it has computed anything: where it is placed, and what passes should cost.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace duo {

// Steps of a draft that makes n_of_step levels in each.
constexpr int32_t steps_for(int32_t n_levels, int32_t n_of_step) {
    return (n_levels + n_of_step - 1) / n_of_step;
}

// Threads of each model while both work on the same cores; 0: as many as the model was given.
struct core_split {
    int32_t target = 0;
    int32_t draft  = 0;
};

struct pair_prior {
    // Both models compute on the same cores or GPU, so they slow each other down when both work.
    bool       shared = false;
    core_split split{}; // of those cores, while both work
    // Points (rows, microseconds) of a target pass by itself, rows ascending; empty: unknown.
    std::vector<std::pair<int32_t, double>> pass_us{};
    double                                  step_us = 0.0; // draft step over one node by itself; 0: unknown
    int32_t n_levels = 1;     // guesses one after the other that such a step gives (model_facts::n_levels)
    bool    windows  = false; // the draft need not read all of a prompt (draft_window.h)

    // Microseconds of a pass over n rows, linear between the points and on along the last two; 0: unknown.
    [[nodiscard]] double pass(int32_t n_rows) const;
    // Each model has cores of its own while both work.
    [[nodiscard]] bool splits_cores() const { return split.target > 0; }
    // Throws duo::error if rows do not ascend, or if a number makes no sense.
    void check() const;
};

} // namespace duo
