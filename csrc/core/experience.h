// What the planner has learned of one way of writing; it survives the texts.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "messages.h"

namespace duo {

// mode, n_max, n_min, n_branch, tree use, greedy or sampled
using experience_key = std::array<int32_t, 6>;

struct experience {
    static constexpr int32_t n_first = 3;

    stance  how      = stance::ahead;
    int32_t n_in     = 0;     // passes in this stance
    int32_t n_since  = 0;     // of these, since one was made without the draft
    int32_t n_poor   = 0;     // of these the last ones in which speculation did not pay
    int32_t n_slow   = 0;     // or in which turn-taking would have been faster
    int32_t n_rest   = 0;     // length of the last rest, passes
    int32_t n_turns  = 0;     // length of the last spell of turn-taking after running ahead was slower; 0: never was
    bool    on_trial = false; // running ahead, to see whether it is faster than turn-taking

    // Fading sums over the passes of this stance.
    double tokens   = 0.0;
    double expected = 0.0;
    double time_us  = 0.0;
    double weight   = 0.0; // of the passes in them
    double usual_us = 0.0; // the same without what held single passes up for reasons of their own

    // Tokens per microsecond of this stance, as steady as the times that it is compared with; 0: nothing measured.
    [[nodiscard]] double rate() const {
        return usual_us > 0.0 ? (expected > tokens ? expected : tokens) / usual_us : 0.0;
    }

    void add(int32_t n_tokens, double n_expected, double us, double memory) {
        // The first of all may be the late one.
        const double mean = n_in == 0 ? us : n_in < n_first ? std::min(us, usual_us / weight) : usual_us / weight;
        usual_us          = (n_in < n_first ? mean * weight : usual_us) * memory + std::min(us, 1.25 * mean);
        weight            = weight * memory + 1.0;
        tokens            = tokens * memory + n_tokens;
        expected          = expected * memory + n_expected;
        time_us           = time_us * memory + us;
        ++n_in;
    }

    void change(stance to) {
        how      = to;
        n_in     = 0;
        n_poor   = 0;
        n_slow   = 0;
        n_since  = 0;
        on_trial = false;
        tokens = expected = time_us = usual_us = weight = 0.0;
    }
};

} // namespace duo
