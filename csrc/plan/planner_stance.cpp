// The planner between passes: is this still the right stance? What a single pass does is in planner.cpp.
#include <algorithm>
#include <limits>

#include "planner.h"

namespace duo {

namespace {
constexpr int32_t n_recheck     = 128; // passes between two yardsticks (see yardstick_due())
constexpr int32_t n_poor_most   = 12;  // passes without profit before speculation rests
constexpr int32_t n_rest_first  = 64;  // passes of rest; doubles
constexpr int32_t n_rest_last   = 1024;
constexpr int32_t n_turns_first = 96;   // passes of turn-taking before running ahead is tried again; doubles
constexpr int32_t n_turns_far   = 2048; // the same if running ahead was far slower
constexpr int32_t n_turns_last  = 8192;
constexpr int32_t n_glance      = 1;    // passes of a trial before it is looked at
constexpr int32_t n_trial       = 12;   // and before it is judged by what it brought
constexpr double  trial_price   = 3.0;  // passes that a trial of running ahead may cost
constexpr double  trial_doubt   = 1.03; // its first passes find little prepared
constexpr double  contended     = 1.1;  // slowdown that is more than noise
constexpr double  small_gain    = 1.05;
} // namespace

void planner::on_verdict(int32_t n_tokens, double expected, int64_t us, bool drafting) {
    if (params_.has_model && !drafting && history_->stance_now != stance::rest) {
        return; // a pass without the draft says nothing about the stance
    }
    if (history_->splits.on_trial()) {
        judge_split(n_tokens, expected, double(us));
        return;
    }
    history_->own.add(n_tokens, expected, double(us));
    ++history_->n_in;
    if (adaptive() && params_.has_model && params_.mode != run_mode::plain) {
        reconsider();
    }
}

// Separate devices lose nothing by running ahead. On shared cores the models take turns, so that whoever works has all
// cores, or the draft rests. A draft that guesses in blocks can prepare nothing, so it takes turns anywhere. Trees that
// the user gave are always grown ahead.
stance planner::first_stance() const {
    if (params_.mode != run_mode::sync && !(async() && params_.has_model && (shared_ || n_levels_ > 1) && adaptive())) {
        return stance::ahead;
    }
    return adaptive() && profile_.has_prior() && !turns_could_pay() ? stance::rest : stance::by_turn;
}

// After each pass: is this still the right stance?
void planner::reconsider() {
    measuring_ = false;
    if (stance_now() == stance::rest) {
        end_rest();
        return;
    }
    if (begin_ahead_trial()) {
        return;
    }
    choose_yardstick();
    if (profile_.pass_us(1, false) == 0.0 || profile_.step_us(1, false) == 0.0) {
        return; // nothing to judge by
    }
    const double own = history_->own.rate();
    history_->n_poor = speculation_is_poor(own) ? history_->n_poor + 1 : 0;
    if (!fall_back(own) && !begin_rest() && history_->n_in > 4 * n_poor_most && history_->n_poor == 0) {
        history_->n_rest = 0; // speculation has paid for long enough, so the next rest is short again
    }
    if (stance_now() == stance::ahead && !measuring_ && history_->n_in >= n_reliable) {
        try_split();
    }
}

// Where working side by side is slow, turn-taking is tried first.
bool planner::end_rest() {
    if (history_->n_in < rest_before_trial()) {
        return false;
    }
    history_->change(!async() || shared_ || n_levels_ > 1 || profile_.slowdown() > 1.25 ? stance::by_turn
                                                                                        : stance::ahead);
    return true;
}

bool planner::begin_ahead_trial() {
    if (!async() || n_levels_ > 1 || stance_now() != stance::by_turn || history_->n_in < turns_before_ahead()) {
        return false;
    }
    history_->change(stance::ahead);
    history_->on_trial = true;
    return true;
}

bool planner::begin_rest() {
    if (history_->n_poor < n_poor_most) {
        return false;
    }
    history_->n_rest = std::clamp(2 * history_->n_rest, n_rest_first, n_rest_last);
    history_->change(stance::rest);
    return true;
}

// Running ahead is tried again later, or sooner if there is another way to split the cores.
bool planner::fall_back(double own) {
    if (!async() || stance_now() != stance::ahead || !turns_are_faster(own)) {
        return false;
    }
    const int32_t least = profile_.slowdown() > 1.5 ? n_turns_far : n_turns_first;
    const bool    other = history_->splits.move_on(draft_is_late());
    history_->n_turns =
        std::clamp(other ? history_->n_turns : 2 * history_->n_turns, other ? n_turns_first : least, n_turns_last);
    history_->change(stance::by_turn);
    profile_.choose_split(history_->splits.now());
    return true;
}

void planner::choose_yardstick() {
    measuring_        = yardstick_due();
    history_->n_since = measuring_ ? 0 : history_->n_since + 1;
}

// True if the target waits for the draft when both work at once, rather than the draft for the target.
bool planner::draft_is_late() const {
    const int32_t k = ways().ahead.k;
    return k * profile_.step_us(1, true) > profile_.pass_us(k + 1, true);
}

// Tries another split of the cores. The model that the other one waits for gets more cores first.
void planner::try_split() {
    if (history_->splits.on_pass(draft_is_late())) {
        profile_.choose_split(history_->splits.now());
    }
}

void planner::judge_split(int32_t n_tokens, double expected, double us) {
    const double trial_rate = ways().ahead.rate;
    profile_.choose_split(history_->splits.best());
    const double best   = ways().ahead.rate;
    const size_t before = history_->splits.best();
    if (!history_->splits.on_trial_pass(n_tokens, expected, us, history_->own.rate(), trial_rate, best) &&
        history_->splits.best() != before) {
        history_->own = history_->splits.tried();
    }
    profile_.choose_split(history_->splits.now());
}

// The yardstick is a pass while the draft stands still; speculation is compared with it. If its cost is known in
// advance, the yardstick can wait until it costs the text little.
bool planner::yardstick_due() const {
    if (profile_.alone(1).n < n_alone && !profile_.has_prior()) {
        return true;
    }
    return params_.mode == run_mode::async && history_->n_since + 1 > n_recheck;
}

bool planner::speculation_is_poor(double own) const {
    const double plain = 1.0 / profile_.pass_us(1, false);
    const bool   poor =
        stance_now() == stance::by_turn ? ways().hopeful.rate < (1.0 + least_gain) * plain : gain() < least_gain;
    return poor || (history_->n_in >= n_reliable && own < plain);
}

// True if running ahead should be given up for turn-taking. The larger the difference, the sooner: two teams of threads
// on the same cores can be ten times as slow as one. A trial must cost little, so it ends early if its first passes
// show that it cannot succeed.
bool planner::turns_are_faster(double own) {
    if (history_->n_in <= 1 && !history_->on_trial) {
        return false;
    }
    const double turns = ways().turns.rate;
    if (history_->on_trial && history_->n_in >= n_glance && history_->n_in <= n_trial) {
        return turns > (history_->n_in < n_trial ? ways().ahead.rate : trial_doubt * own);
    }
    // At first widths are still being tried. Without contention turn-taking has little to win.
    const bool contend = profile_.slowdown() > contended;
    if (!contend && history_->n_in < n_reliable) {
        return false;
    }
    const double clear = history_->n_in < n_reliable ? 1.5 : contend ? 1.03 : 1.1;
    const bool   slow  = turns > clear * own;
    history_->n_slow   = slow ? history_->n_slow + (turns > 2.0 * own   ? n_poor_most
                                                    : turns > 1.5 * own ? n_poor_most / 3
                                                                        : 1)
                              : 0;
    return history_->n_slow >= n_poor_most ||
           (history_->n_poor >= n_poor_most && turns > 1.03 / profile_.pass_us(1, false));
}

// Passes of turn-taking before running ahead is tried. A failed trial costs some passes, so the more there is to win,
// the sooner it is tried. After each failure it is tried later.
int32_t planner::turns_before_ahead() const {
    if (history_->n_turns > 0) {
        return history_->n_turns;
    }
    const double turns = ways().turns.rate;
    const double most  = turns > 0.0 ? ways().ahead.rate / turns : 0.0;
    return most < small_gain ? std::numeric_limits<int32_t>::max()
                             : std::max(n_reliable, int32_t(trial_price / (trial_share * most)));
}

// Passes of rest before turn-taking is tried again. Each pass of the trial costs a draft step, and the rest is long
// enough to make that a small share. On separate devices steps cost nothing.
int32_t planner::rest_before_trial() const {
    const double pass  = profile_.pass_us(1, false);
    const double c     = shared_ && pass > 0.0 ? std::min(1.0, profile_.step_us(1, false) / pass) : 0.0;
    const auto   least = int32_t(n_poor_most * c / trial_share);
    return std::min(n_rest_last, std::max({n_rest_first, history_->n_rest, least}));
}

} // namespace duo
