// What the planner has learned about one way of generating (see stance_key). It is kept from text to text.
#pragma once

#include <array>
#include <cstdint>

#include "base/messages.h"
#include "core_split.h"

namespace duo {

// mode, n_max, n_min, n_branch, tree use, kind of the guesses, with a draft or without, number of texts
using stance_key = std::array<int32_t, 8>;

constexpr int32_t n_reliable = 32; // passes before a stance's own rate is believed

struct stance_history {
    stance  stance_now = stance::ahead;
    int32_t n_in       = 0;     // passes in this stance
    int32_t n_since    = 0;     // of these, passes since the last one without the draft
    int32_t n_poor     = 0;     // passes in a row in which speculation did not pay
    int32_t n_slow     = 0;     // how clearly, and how often, turn-taking was faster than running ahead
    int32_t n_rest     = 0;     // length of the last rest, passes
    int32_t n_turns    = 0;     // passes of turn-taking before the next trial of running ahead; 0: no trial has failed
    bool    on_trial   = false; // running ahead, to see whether it is faster than turn-taking

    double       spent_us = 0.0; // on speculation since the last rest, less what it has saved
    pace         own;            // of this stance
    split_search splits;         // of the cores, while both work

    void change(stance to) {
        stance_now = to;
        n_in       = 0;
        n_poor     = 0;
        n_slow     = 0;
        n_since    = 0;
        on_trial   = false;
        own        = {};
        splits.stop_trial();
    }
};

} // namespace duo
