// What the planner has learned about each way of generating. It is kept from text to text.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>

#include "base/messages.h"
#include "pace.h"
#include "stance_rates.h"

namespace duo {

// mode, n_max, n_min, n_branch, tree use, kind of the guesses, with a draft or without, number of texts
using stance_key = std::array<int32_t, 8>;

constexpr int32_t n_reliable = 32; // passes before a stance's own rate is believed

struct stance_history {
    static constexpr double turns_gain_most = 1.5; // more is noise

    stance  stance_now = stance::ahead;
    int32_t n_in       = 0;     // passes in this stance
    int32_t n_since    = 0;     // of these, passes since the last one without the draft
    int32_t n_poor     = 0;     // passes of one text, in a row, in which speculation did not pay
    int32_t n_slow     = 0;     // how clearly, and how often, turn-taking was faster than running ahead
    int32_t n_rest     = 0;     // length of the last rest, passes
    int32_t n_turns    = 0;     // passes of turn-taking before the next trial of running ahead; 0: no trial has failed
    double  turns_gain = 1.0;   // what turn-taking brought / its estimate
    bool    on_trial   = false; // running ahead, to see whether it is faster than turn-taking

    double reading_us = 0.0; // that drafts took to read texts since the last rest, or since speculation paid
    pace   own;              // of this stance

    // By turn, the draft stops early where it is unsure and goes on where it is sure, which an average acceptance does
    // not show. So turn-taking brings more than its estimate, if it makes guesses at all.
    void learn_turns(const stance_rates::way & estimate) {
        turns_gain = estimate.k > 0 ? std::clamp(own.rate() / estimate.rate, 1.0, turns_gain_most) : turns_gain;
    }
    [[nodiscard]] double turns_rate(const stance_rates::way & estimate) const {
        return estimate.k > 0 ? turns_gain * estimate.rate : estimate.rate;
    }

    // The next rest is short again.
    void forget_rest() {
        n_rest     = 0;
        reading_us = 0.0;
    }

    void change(stance to) {
        stance_now = to;
        n_in       = 0;
        n_poor     = 0;
        n_slow     = 0;
        n_since    = 0;
        on_trial   = false;
        own        = {};
    }
};

// The ways of generating with one draft, one of which is in use.
class stance_memory {
  public:
    using ways = std::map<stance_key, stance_history>;

    stance_memory()                                  = default;
    stance_memory(const stance_memory &)             = delete;
    stance_memory & operator=(const stance_memory &) = delete;

    // True: nothing is known of this way.
    bool use(const stance_key & key) {
        const auto [at, fresh] = ways_.try_emplace(key);
        now_                   = &at->second;
        return fresh;
    }
    [[nodiscard]] stance_history &       now() { return *now_; }
    [[nodiscard]] const stance_history & now() const { return *now_; }
    [[nodiscard]] const ways &           all() const { return ways_; }

    // After these, the way of no text is in use.
    void put(const stance_key & key, const stance_history & saved) {
        ways_.insert_or_assign(key, saved);
        use({});
    }
    void swap(ways & other) {
        ways_.swap(other);
        use({});
    }
    void forget() {
        ways_.clear();
        use({});
    }

  private:
    ways             ways_;
    stance_history * now_ = &ways_[{}]; // the empty key belongs to no text
};

} // namespace duo
