// The planner between passes: is this still the right stance? What a single pass does is in planner.cpp.
#include <algorithm>

#include "planner.h"

namespace duo {

namespace {
constexpr int32_t n_recheck     = 128; // passes until auto makes one without the draft beside it again
constexpr int32_t n_poor_most   = 12;  // passes without profit before speculation rests
constexpr int32_t n_rest_last   = 1024;
constexpr int32_t n_turns_first = 96;   // passes of turn-taking before both at once is tried again; doubles up to
constexpr int32_t n_turns_far   = 2048; // the same where it was far slower
constexpr int32_t n_turns_last  = 8192;
constexpr int32_t n_settled     = 32;   // passes before a stance's own rate is believed
constexpr double  memory        = 0.98; // weight of a pass fades by this with each later one
constexpr double  visible       = 1.25; // slowdown that is more than noise
} // namespace

void planner::on_verdict(int32_t n_tokens, double expected, int64_t us) {
    my_->tokens   = my_->tokens * memory + n_tokens;
    my_->expected = my_->expected * memory + expected;
    my_->time_us  = my_->time_us * memory + double(us);
    ++my_->n_in;
    if (adaptive() && params_.has_model && params_.mode != run_mode::plain) {
        reconsider();
    }
}

// What verified levels would bring at best, in tokens a pass: optimistic, as it takes the draft's nodes as given.
double planner::gain() const {
    const double r    = rate();
    const double base = profile_.pass_us(1, false);
    double       best = 0.0;
    double       sum  = 0.0;
    double       here = 1.0;
    for (int32_t i = 0; i < n_max_; ++i) {
        here *= profile_.acceptance(i);
        sum += here;
        best = std::max(best, sum - r * (profile_.pass_us(i + 2, beside()) - base));
    }
    return best;
}

// After each pass: is this still the right stance?
void planner::reconsider() {
    const bool async = params_.mode == run_mode::async;
    measuring_       = false;
    if (my_->how != stance::ahead && my_->n_stay > 0 && --my_->n_stay == 0) {
        // What was slow side by side is tried again by turns first.
        const bool apart = !async || (my_->how == stance::rest && profile_.slowdown() > visible);
        my_->change(apart ? stance::by_turn : stance::ahead);
        my_->n_stay = apart && async ? std::max(my_->n_turns, n_turns_first) : 0;
        return;
    }
    if (my_->how == stance::rest) {
        return;
    }
    const average & one   = profile_.alone(1);
    measuring_            = one.n < n_alone ? profile_.n_passes() < 4 * n_alone
                                            : async && my_->how == stance::ahead && ++my_->n_beside > n_recheck;
    my_->n_beside         = measuring_ ? 0 : my_->n_beside;
    const double plain_us = profile_.pass_us(1, false);
    if (plain_us == 0.0 || profile_.step_us() == 0.0) {
        return;
    }
    const double own  = my_->time_us > 0.0 ? std::max(my_->expected, my_->tokens) / my_->time_us : 0.0;
    const bool   none = my_->how == stance::by_turn && turns_width(n_max_, profile_.step_us()) == 0;
    const bool   poor = none || gain() < least_gain || (my_->n_in >= n_settled && own < 1.0 / plain_us);
    my_->n_poor       = poor ? my_->n_poor + 1 : 0;
    if (async && my_->how == stance::ahead && profile_.slowdown() > visible && my_->n_in > 1) {
        // The clearer it is, the sooner: two teams of threads on the same cores can be ten times as slow as one.
        const double turns = best_turns_rate();
        my_->n_slow += turns > 2.0 * own ? n_poor_most : turns > 1.5 * own ? n_poor_most / 3 : 1;
        const bool slow = turns > (my_->n_in >= n_settled ? 1.03 : 1.5) * own; // widths are still being tried at first
        my_->n_slow     = slow ? my_->n_slow : 0;
        if (my_->n_slow >= n_poor_most || (my_->n_poor >= n_poor_most && turns > 1.03 / plain_us)) {
            my_->n_turns =
                std::clamp(2 * my_->n_turns, profile_.slowdown() > 1.5 ? n_turns_far : n_turns_first, n_turns_last);
            my_->change(stance::by_turn);
            my_->n_stay = my_->n_turns;
            return;
        }
    }
    if (my_->n_poor >= n_poor_most) {
        my_->n_rest = std::clamp(2 * my_->n_rest, n_rest_first, n_rest_last);
        my_->change(stance::rest);
        my_->n_stay = my_->n_rest;
    } else if (my_->n_in > 4 * n_poor_most && my_->n_poor == 0) {
        my_->n_rest = 0;
    }
}

// What turn-taking would bring, as the undisturbed times have it.
double planner::best_turns_rate() const {
    const double step = profile_.step_us() / profile_.slowdown();
    return turns_rate(turns_width(n_max_, step, false), step, false);
}

void planner::experience::change(stance to) {
    how    = to;
    n_in   = 0;
    n_poor = n_slow = 0;
    n_stay = n_beside = 0;
    tokens = expected = time_us = 0.0;
}

} // namespace duo
