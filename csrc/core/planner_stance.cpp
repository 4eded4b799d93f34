// The planner between passes: is this still the right stance? What a single pass does is in planner.cpp.
#include <algorithm>
#include <limits>

#include "planner.h"

namespace duo {

namespace {
constexpr int32_t n_recheck     = 128; // passes until auto makes one over one row, without the draft beside it, again
constexpr int32_t n_poor_most   = 12;  // passes without profit before speculation rests
constexpr int32_t n_rest_first  = 64;  // passes of rest; doubles
constexpr int32_t n_rest_last   = 1024;
constexpr int32_t n_turns_first = 96;   // passes of turn-taking before both at once is tried again; doubles up to
constexpr int32_t n_turns_far   = 2048; // the same where it was far slower
constexpr int32_t n_turns_last  = 8192;
constexpr int32_t n_glance      = 1;    // passes of a trial before it is looked at
constexpr int32_t n_trial       = 12;   // and before it is judged by what it brought
constexpr double  trial_price   = 3.0;  // passes that a trial of running ahead may cost
constexpr double  trial_doubt   = 1.03; // its first passes find little prepared
constexpr double  contended     = 1.1;  // slowdown that is more than noise
constexpr double  small_gain    = 1.05;
} // namespace

void planner::on_verdict(int32_t n_tokens, double expected, int64_t us, bool drafting) {
    if (params_.has_model && !drafting && my_->how != stance::rest) {
        return; // without the draft it says nothing of the stance
    }
    if (my_->splits.on_trial()) {
        judge_split(n_tokens, expected, double(us));
        return;
    }
    my_->own.add(n_tokens, expected, double(us));
    ++my_->n_in;
    if (adaptive() && params_.has_model && params_.mode != run_mode::plain) {
        reconsider();
    }
}

// Separate devices lose nothing by running ahead. On shared cores whoever works has them all, if that is worth it;
// trees that the user gave are grown ahead in any case.
stance planner::first_stance() const {
    const bool async = params_.mode == run_mode::async && params_.has_model;
    if (params_.mode != run_mode::sync && !(async && shared_ && adaptive())) {
        return stance::ahead;
    }
    return adaptive() && profile_.has_prior() && !turns_could_pay() ? stance::rest : stance::by_turn;
}

// After each pass: is this still the right stance?
void planner::reconsider() {
    const bool async = params_.mode == run_mode::async;
    measuring_       = false;
    if (my_->how == stance::rest) {
        // What is slow side by side is tried by turns first.
        if (my_->n_in >= rest_before_trial()) {
            my_->change(!async || shared_ || profile_.slowdown() > 1.25 ? stance::by_turn : stance::ahead);
        }
        return;
    }
    if (async && my_->how == stance::by_turn && my_->n_in >= turns_before_ahead()) {
        my_->change(stance::ahead);
        my_->on_trial = true;
        return;
    }
    measuring_   = yardstick_due();
    my_->n_since = measuring_ ? 0 : my_->n_since + 1;
    if (profile_.pass_us(1, false) == 0.0 || profile_.step_us(1, false) == 0.0) {
        return;
    }
    const double own = my_->own.rate();
    my_->n_poor      = speculation_is_poor(own) ? my_->n_poor + 1 : 0;
    if (async && my_->how == stance::ahead && turns_are_faster(own)) {
        leave_ahead();
    } else if (my_->n_poor >= n_poor_most) {
        my_->n_rest = std::clamp(2 * my_->n_rest, n_rest_first, n_rest_last);
        my_->change(stance::rest);
    } else if (my_->n_in > 4 * n_poor_most && my_->n_poor == 0) {
        my_->n_rest = 0;
    }
    if (my_->how == stance::ahead && !measuring_ && my_->n_in >= n_settled) {
        try_split();
    }
}

// Running ahead is tried again later, and sooner where the cores can be split in a way that was not tried.
void planner::leave_ahead() {
    const int32_t least = profile_.slowdown() > 1.5 ? n_turns_far : n_turns_first;
    const bool    other = my_->splits.move_on(draft_is_late());
    my_->n_turns = std::clamp(other ? my_->n_turns : 2 * my_->n_turns, other ? n_turns_first : least, n_turns_last);
    my_->change(stance::by_turn);
    profile_.choose_split(my_->splits.now());
}

// Side by side the target waits for the draft, rather than the draft for the target.
bool planner::draft_is_late() const {
    const int32_t k = ways().ahead.k;
    return k * profile_.step_us(1, true) > profile_.pass_us(k + 1, true);
}

// Would another split of the cores bring more? The model that the other one waits for is the first to get more.
void planner::try_split() {
    if (my_->splits.on_pass(draft_is_late())) {
        profile_.choose_split(my_->splits.now());
    }
}

void planner::judge_split(int32_t n_tokens, double expected, double us) {
    const double here = ways().ahead.rate;
    profile_.choose_split(my_->splits.best());
    const double best   = ways().ahead.rate;
    const size_t before = my_->splits.best();
    if (!my_->splits.on_trial_pass(n_tokens, expected, us, my_->own.rate(), here, best) &&
        my_->splits.best() != before) {
        my_->own = my_->splits.tried();
    }
    profile_.choose_split(my_->splits.now());
}

// A pass with the draft standing still: what speculation is compared with. Where it is expected to cost so
// much anyway, it can wait until it costs a text little.
bool planner::yardstick_due() const {
    if (profile_.alone(1).n < n_alone && !profile_.has_prior()) {
        return true;
    }
    return params_.mode == run_mode::async && my_->n_since + 1 > n_recheck;
}

bool planner::speculation_is_poor(double own) const {
    return (my_->how == stance::by_turn ? ways().hopeful.k == 0 : gain() < least_gain) ||
           (my_->n_in >= n_settled && own < 1.0 / profile_.pass_us(1, false));
}

// Running ahead is given up for turn-taking: the clearer it is, the sooner, for two teams of threads on the same cores
// can be ten times as slow as one. A trial may cost little, so the first passes must show that it can be won at all.
bool planner::turns_are_faster(double own) {
    if (my_->n_in <= 1 && !my_->on_trial) {
        return false;
    }
    const double turns = ways().turns.rate;
    if (my_->on_trial && my_->n_in >= n_glance && my_->n_in <= n_trial) {
        return turns > (my_->n_in < n_trial ? ways().ahead.rate : trial_doubt * own);
    }
    // Widths are still being tried at first. Without contention there is little that turns could win by.
    const bool contend = profile_.slowdown() > contended;
    if (!contend && my_->n_in < n_settled) {
        return false;
    }
    const double clear = my_->n_in < n_settled ? 1.5 : contend ? 1.03 : 1.1;
    const bool   slow  = turns > clear * own;
    my_->n_slow = slow ? my_->n_slow + (turns > 2.0 * own ? n_poor_most : turns > 1.5 * own ? n_poor_most / 3 : 1) : 0;
    return my_->n_slow >= n_poor_most || (my_->n_poor >= n_poor_most && turns > 1.03 / profile_.pass_us(1, false));
}

// Passes by turn after which running ahead is tried. It costs some passes if it fails, so the more there is to win the
// sooner; where it has failed before, later each time.
int32_t planner::turns_before_ahead() const {
    if (my_->n_turns > 0) {
        return my_->n_turns;
    }
    const double turns = ways().turns.rate;
    const double most  = turns > 0.0 ? ways().ahead.rate / turns : 0.0;
    return most < small_gain ? std::numeric_limits<int32_t>::max()
                             : std::max(n_settled, int32_t(trial_price / (trial_share * most)));
}

// A trial by turns costs a step of the draft for each of its passes; the rest before it is long enough to make that
// little. On devices of their own steps cost nothing.
int32_t planner::rest_before_trial() const {
    const double pass  = profile_.pass_us(1, false);
    const double c     = shared_ && pass > 0.0 ? std::min(1.0, profile_.step_us(1, false) / pass) : 0.0;
    const auto   least = int32_t(n_poor_most * c / trial_share);
    return std::min(n_rest_last, std::max({n_rest_first, my_->n_rest, least}));
}

} // namespace duo
