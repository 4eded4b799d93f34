#include "stance_choice.h"

#include <algorithm>
#include <limits>

#include "row_values.h"

namespace duo {

namespace {
constexpr int32_t n_recheck     = 128; // passes between two yardsticks (see yardstick_due())
constexpr int32_t n_poor_most   = 12;  // passes without profit before speculation rests
constexpr int32_t n_rest_first  = 64;  // passes of rest; doubles
constexpr int32_t n_rest_last   = 1024;
constexpr int32_t n_paid_last   = 8192; // however much the last trial cost
constexpr int32_t n_rest_soon   = 32;   // passes of rest that are left when a new text begins
constexpr int32_t n_turns_first = 96;   // passes of turn-taking before running ahead is tried again; doubles
constexpr int32_t n_turns_far   = 2048; // the same if running ahead was far slower
constexpr int32_t n_turns_last  = 8192;
constexpr int32_t n_glance      = 1;    // passes of a trial before it is looked at
constexpr int32_t n_trial       = 12;   // and before it is judged by what it brought
constexpr int32_t n_clear_loss  = 5;    // passes of several texts after which a clear loss ends speculation
constexpr int32_t n_poor_each   = 3;    // passes of one text that a poor pass of several texts counts as
constexpr double  n_believed    = 8.0;  // the expected rate of turn-taking weighs as much as so many passes
constexpr double  trial_price   = 3.0;  // passes that a trial of running ahead may cost
constexpr double  split_price   = 1.0;  // the same if each model then has a device or cores of its own
constexpr double  trial_doubt   = 1.03; // its first passes find little prepared
constexpr double  most_reading  = 50.0; // passes that one with drafts' reading may take longer; more is a stop (Ctrl-Z)
constexpr double  contended     = 1.1;  // slowdown that is more than noise
constexpr double  small_gain    = 1.05;
constexpr double  clear_loss    = 0.92;
constexpr double  least_speedup = 1.02; // that speculation has brought, or it rests
constexpr double  least_hope    = 1.10; // that it must promise several texts in its first passes, or it rests

bool is_async(const plan_params & p) {
    return p.mode == run_mode::async;
}
} // namespace

void stance_choice::begin(const plan_params & params, const text_limits & limits) {
    params_    = params;
    limits_    = limits;
    measuring_ = false;
    const bool fresh =
        memory_.use({int32_t(params.mode), params.n_max, params.n_min, params.n_branch, int32_t(params.use),
                     int32_t(params.kind), params.has_model ? 1 : 0, limits.n_texts});
    stance_history & h    = memory_.now();
    const bool       sync = params.mode == run_mode::sync && !limits.no_waits;
    if (fresh || is_fixed(params) || !params.has_model || (sync && now() == stance::ahead)) {
        h.change(first());
    }
    // A new text is a new chance. On separate devices a trial costs little, so the rest after it is short again: a long
    // one could last to the end of each text.
    if (now() == stance::rest && !shared() && !limits.several()) {
        h.forget_rest();
        h.n_in = std::max(h.n_in, rest_before_trial() - n_rest_soon);
    }
    // On shared cores the rest of the last text ends if drafts have brought enough to the texts before.
    if (now() == stance::rest && shared() && !limits.several() && !limits.goes_on &&
        profile_.gains(params.kind).promise() && first() != stance::rest) {
        h.change(first());
        h.forget_rest();
    }
}

double stance_choice::rate() const {
    const double us = rates_.plain_us();
    if (now() != stance::by_turn || us <= 0.0) {
        return memory_.now().own.usual_us > 0.0
                   ? std::max(rates_.plain(), memory_.now().own.tokens / memory_.now().own.usual_us)
                   : rates_.plain();
    }
    // A few lucky passes would make every guess look too expensive, and a few unlucky ones too cheap.
    return std::max(rates_.plain(), (memory_.now().own.tokens + n_believed * us * rates_.now().turns.rate) /
                                        (memory_.now().own.usual_us + n_believed * us));
}

void stance_choice::on_pass(const pass_result & pass) {
    stance_history & h = memory_.now();
    if (params_.has_model && !pass.drafting && now() != stance::rest) {
        return; // a pass without the draft says nothing about the stance
    }
    if (now() != stance::rest && !pass.usual && rates_.plain_us() > 0.0) {
        h.reading_us +=
            std::min(pass.us - pass.n_tokens * rates_.plain_us() / limits_.n_texts, most_reading * rates_.plain_us());
    }
    if (pass.usual) {
        h.own.add(pass.n_tokens, pass.expected, pass.us);
        if (now() == stance::by_turn && h.own.n >= n_trial) {
            h.learn_turns(rates_.now().turns);
        }
    }
    if (pass.usual || now() == stance::rest) {
        ++h.n_in;
        if (!is_fixed(params_) && params_.has_model && params_.mode != run_mode::plain) {
            reconsider();
        }
    }
}

// On the same cores models take turns, so that whoever works has all cores. A draft that guesses in blocks can prepare
// nothing, so it takes turns anywhere.
bool stance_choice::takes_turns_first() const {
    return !limits_.no_waits && (params_.mode == run_mode::sync ||
                                 (is_async(params_) && params_.has_model && (shared() || rates_.terms().n_levels > 1) &&
                                  (!is_fixed(params_) || limits_.several())));
}

// Separate devices lose nothing by running ahead. On shared cores the models take turns or the draft rests. Trees that
// the user gave are always grown ahead.
stance stance_choice::first() const {
    if (limits_.several() && !params_.has_model) {
        return stance::rest;
    }
    if (!takes_turns_first()) {
        return stance::ahead;
    }
    return !is_fixed(params_) && profile_.passes().has_prior() && !rates_.turns_could_pay() ? stance::rest
                                                                                            : stance::by_turn;
}

// After each pass: is this still the right stance?
void stance_choice::reconsider() {
    stance_history & h = memory_.now();
    measuring_         = false;
    if (now() == stance::rest) {
        end_rest();
        return;
    }
    if (begin_ahead_trial()) {
        return;
    }
    measuring_ = yardstick_due();
    h.n_since  = measuring_ ? 0 : h.n_since + 1;
    if (rates_.plain_us() == 0.0 || (rates_.step_us(false) == 0.0 && h.n_in < n_reliable)) {
        return; // nothing to judge by
    }
    const double own = h.own.rate();
    h.n_poor         = loses_clearly()            ? n_poor_most
                       : speculation_is_poor(own) ? h.n_poor + (limits_.several() ? n_poor_each : 1)
                                                  : 0;
    const bool fell  = rates_.step_us(false) > 0.0 && fall_back(own);
    if (!fell && !begin_rest() && h.n_in > 4 * n_poor_most && h.n_poor == 0) {
        h.forget_rest(); // speculation has paid for long enough
    }
}

// Where working side by side is slow, turn-taking is tried first.
bool stance_choice::end_rest() {
    if (memory_.now().n_in < rest_before_trial()) {
        return false;
    }
    const bool turns =
        !is_async(params_) || shared() || rates_.terms().n_levels > 1 || profile_.passes().slowdown() > 1.25;
    memory_.now().change(turns && !limits_.no_waits ? stance::by_turn : stance::ahead);
    memory_.now().reading_us = 0.0;
    return true;
}

// Several texts on the same cores only ever take turns.
bool stance_choice::begin_ahead_trial() {
    if (!is_async(params_) || rates_.terms().n_levels > 1 || (limits_.several() && shared()) ||
        now() != stance::by_turn || memory_.now().n_in < turns_before_ahead()) {
        return false;
    }
    memory_.now().change(stance::ahead);
    memory_.now().on_trial = true;
    return true;
}

bool stance_choice::begin_rest() {
    if (memory_.now().n_poor < n_poor_most) {
        return false;
    }
    memory_.now().n_rest = std::clamp(2 * memory_.now().n_rest, n_rest_first, n_rest_last);
    memory_.now().change(stance::rest);
    return true;
}

// Running ahead is tried again later.
bool stance_choice::fall_back(double own) {
    if (!is_async(params_) || limits_.no_waits || now() != stance::ahead || !turns_are_faster(own)) {
        return false;
    }
    const int32_t least   = profile_.passes().slowdown() > 1.5 ? n_turns_far : n_turns_first;
    memory_.now().n_turns = std::clamp(2 * memory_.now().n_turns, least, n_turns_last);
    memory_.now().change(stance::by_turn);
    return true;
}

// The yardstick is a pass while the draft stands still; speculation is compared with it. If its cost is known in
// advance, the yardstick can wait until it costs the text little. Several texts do not stand still for it.
bool stance_choice::yardstick_due() const {
    if (limits_.several()) {
        return false;
    }
    if (profile_.passes().alone(1).n < n_alone && !profile_.passes().has_prior()) {
        return true;
    }
    return is_async(params_) && memory_.now().n_since + 1 > n_recheck;
}

// A pass over several texts tells as much as several passes, so what they have brought is believed sooner.
bool stance_choice::loses_clearly() const {
    const pace & own  = memory_.now().own;
    const double gain = own.usual_us > 0.0 && rates_.plain() > 0.0 ? own.tokens / own.usual_us / rates_.plain() : 1.0;
    return limits_.several() &&
           ((own.n >= n_clear_loss && gain < clear_loss) || (own.n >= n_trial && gain < least_speedup));
}

bool stance_choice::speculation_is_poor(double own) const {
    const bool   untried = limits_.several() && memory_.now().n_in < n_trial;
    const double least   = untried ? least_hope : 1.0 + row_values::least_gain;
    const bool   poor    = now() == stance::by_turn ? rates_.now().hopeful.rate < least * rates_.plain()
                                                    : rates_.gain(rate(), now() == stance::ahead) < row_values::least_gain;
    return poor || (memory_.now().n_in >= n_reliable && own < least_speedup * rates_.plain());
}

// True if running ahead should be given up for turn-taking. The larger the difference, the sooner: two teams of threads
// on the same cores can be ten times as slow as one. A trial must cost little, so it ends early if its first passes
// show that it cannot succeed.
bool stance_choice::turns_are_faster(double own) {
    stance_history & h = memory_.now();
    if (h.n_in <= 1 && !h.on_trial) {
        return false;
    }
    const double turns = h.turns_rate(rates_.now().turns);
    if (h.on_trial && h.n_in >= n_glance && h.n_in <= n_trial) {
        return turns > (h.n_in < n_trial ? rates_.now().ahead.rate : trial_doubt * own);
    }
    // At first widths are still being tried. Without contention turn-taking has little to win.
    const bool contend = profile_.passes().slowdown() > contended;
    if (!contend && h.n_in < n_reliable) {
        return false;
    }
    const double clear = h.n_in < n_reliable ? 1.5 : contend ? 1.03 : 1.1;
    const bool   slow  = turns > clear * own;
    h.n_slow = slow ? h.n_slow + (turns > 2.0 * own ? n_poor_most : turns > 1.5 * own ? n_poor_most / 3 : 1) : 0;
    return h.n_slow >= n_poor_most || (h.n_poor >= n_poor_most && turns > 1.03 * rates_.plain());
}

// Passes of turn-taking before running ahead is tried. A failed trial costs some passes, so the more there is to win,
// the sooner it is tried. After each failure it is tried later.
int32_t stance_choice::turns_before_ahead() const {
    if (memory_.now().n_turns > 0) {
        return memory_.now().n_turns;
    }
    const double turns = memory_.now().turns_rate(rates_.now().turns);
    const double most  = turns > 0.0 ? rates_.now().ahead.rate / turns : 0.0;
    const double price = shared() && !profile_.passes().prior().splits_cores() ? trial_price : split_price;
    return most < small_gain ? std::numeric_limits<int32_t>::max()
                             : std::max(n_reliable, int32_t(price / (trial_share * most)));
}

// Passes of rest before speculation is tried again: so many that the next trial, each pass of which costs a draft step,
// is a small share of their time, and so was the drafts' reading for the last one. On separate devices steps cost
// nothing.
int32_t stance_choice::rest_before_trial() const {
    const double pass  = rates_.plain_us();
    const double c     = shared() && pass > 0.0 ? std::min(1.0, rates_.step_us(false) / pass) : 0.0;
    const auto   least = int32_t(n_poor_most * c / trial_share);
    const double paid  = pass > 0.0 ? memory_.now().reading_us / (trial_share * pass) : 0.0;
    return std::max(std::min(n_rest_last, std::max({n_rest_first, memory_.now().n_rest, least})),
                    int32_t(std::clamp(paid, 0.0, double(n_paid_last))));
}

} // namespace duo
