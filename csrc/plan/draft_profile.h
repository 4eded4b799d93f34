// What was measured of one draft: the times of its steps, and how often its guesses are right.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "guess_record.h"
#include "text/request.h"
#include "text_gains.h"

namespace duo {

constexpr double alone_share = 0.25; // a pass or step counts as alone if the other model worked for less of it

// A running average. Of the first samples it uses the smallest, because the first passes of a shape include its set-up.
// If its value is old, a smaller new sample replaces it.
struct average {
    double  value  = 0.0;
    int32_t n      = 0;
    int64_t i_last = 0; // pass that was measured last

    void add(double x, int64_t i_pass);
};

using step_table = std::array<average, n_step_cap + 1>; // by nodes

// Owned by the verify worker. On a host each client's draft has its own, so that none decides for the others.
struct draft_profile {
    step_table                              alone{};  // while the target stands still
    step_table                              beside{}; // while it works
    std::array<guess_record, n_guess_kinds> guesses{};
    std::array<text_gains, n_guess_kinds>   gains{};

    // A step over n_rows nodes. shared: part of its time in which the target worked too, 0..1.
    void on_step(int32_t n_rows, float us, double shared, int64_t i_pass);
    // The time of the smallest step that was measured; 0: none was.
    [[nodiscard]] double any_step_us() const;
};

} // namespace duo
