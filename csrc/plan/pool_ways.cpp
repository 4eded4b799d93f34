// What the ways to speculate with several texts would bring, by what was measured; which one is taken. For n texts and
// k guesses each, E(k) = 1 + a_0 + a_0 a_1 + ... is the number of tokens that a text gets from a pass.
#include <algorithm>

#include "pool_planner.h"

namespace duo {

namespace {
constexpr int32_t  n_levels_most = 16;  // guesses of a text in a pass
constexpr uint32_t n_rest_first  = 128; // passes without drafts before they are tried again
constexpr uint32_t n_rest_most   = 2048;
constexpr uint32_t n_paid_most   = 8192; // however much the last trial cost
constexpr double   trial_share   = 0.01; // of a rest's time, for the next trial
constexpr int32_t  n_trial       = 4;    // passes in which drafts could bring nothing, before a rest
constexpr int32_t  n_judged      = 12;   // passes with drafts before they are judged
constexpr double   least_speedup = 1.02; // of speculation, or it rests
constexpr double   least_hope    = 1.10; // the same before it was tried, because what is expected is hopeful
constexpr int32_t  n_glance      = 5;    // passes after which speculation may be given up
constexpr double   poor          = 0.92; // if it brought less than this
constexpr double   least_change  = 1.05; // of another way, or the way stays
constexpr double   n_believed    = 8.0;  // passes that the expected rate weighs as much as, at first
constexpr double   n_enough      = 48.0; // passes after which only what was measured counts
constexpr double   n_hoped       = 8.0;  // texts' passes that the hope for ready guesses weighs as much as
constexpr uint32_t n_between     = 4;    // passes from one choice to the next
constexpr int32_t  n_ahead_most  = 2 * n_levels_most + 2;
} // namespace

double pool_planner::rate_of(stance s, size_t n_texts, const pair_profile & profile, int32_t n_most) const {
    return believed(s, best_of(s, n_texts, profile, n_most).rate, n_texts, profile);
}

pool_planner::way pool_planner::best_of(stance s, size_t n_texts, const pair_profile & profile, int32_t n_most) const {
    const auto   n     = int32_t(n_texts);
    const double plain = profile.pass_us(n, false);
    const double hit   = record_of(n_texts).ready.share(profile.guesses(kind_).acceptance(0), n_hoped);
    double       miss  = 1.0; // at least one text
    for (size_t i = 0; i < n_texts; ++i) {
        miss *= hit;
    }
    miss = 1.0 - miss;
    way    best{.k = 0, .rate = plain > 0.0 ? n / plain : 0.0};
    double sum  = 1.0;
    double here = 1.0;
    if (s == stance::rest) {
        return best;
    }
    const double worth = record_of(n_texts).own[size_t(s)].n < n_judged ? least_hope : least_speedup;
    for (int32_t k = 1; k <= std::min(n_most, n_levels_most); ++k) {
        here *= profile.guesses(kind_).acceptance(k - 1);
        sum += here;
        double us     = 0.0;
        double tokens = n * sum;
        if (s == stance::by_turn) {
            us = n_steps(k) * profile.step_us(n, false) + profile.pass_us(n * (k + 1), false);
        } else {
            // Either a text that missed gives its root, or the pass waits for its guesses.
            const double steps  = n_steps(k) * profile.step_us(n, true);
            const double full   = std::max(steps, profile.pass_us(n * (k + 1), true));
            const double waited = full + miss * steps;
            us                  = std::max(steps, profile.pass_us(n + int32_t(n * hit * k + 0.5), true));
            tokens              = n * (hit * sum + 1.0 - hit);
            if (us <= 0.0 || n * sum * us > tokens * waited) {
                us     = waited;
                tokens = n * sum;
            }
        }
        if (us > 0.0 && tokens / us > best.rate * (best.k == 0 ? worth : 1.0)) {
            best = {.k = k, .rate = tokens / us};
        }
    }
    return best;
}

// The expected rate, and what was measured: the more of it, the more it counts.
double pool_planner::believed(stance s, double expected, size_t n_texts, const pair_profile & profile) const {
    const pace & own = record_of(n_texts).own[size_t(s)];
    const double us  = std::max(0.0, n_believed * (1.0 - own.n / n_enough)) * profile.pass_us(int32_t(n_texts), false);
    const double sum = own.usual_us + us;
    return sum > 0.0 ? (own.tokens + us * expected) / sum : expected;
}

// Tokens per microsecond of all texts.
double pool_planner::rate(size_t n_texts, const pair_profile & profile) const {
    const double alone = profile.pass_us(int32_t(n_texts), false);
    const double plain = alone > 0.0 ? double(n_texts) / alone : 0.0;
    return std::max(plain, believed(now_, plain, n_texts, profile));
}

void pool_planner::choose_way(record & r, size_t n_texts, const pair_profile & profile, const pool_wishes & wishes) {
    const bool turns = (shared_ || wishes.sync || n_levels_ > 1) && !wishes.no_waits;
    double     value = 0.0;
    way_             = {};
    if (only_.has_value()) {
        now_   = *only_;
        way_   = best_of(now_, n_texts, profile, wishes.n_most);
        way_.k = std::max(way_.k, now_ == stance::rest ? 0 : 2);
        return;
    }
    for (const stance s : {r.now, stance::ahead, stance::by_turn}) {
        if (s == stance::rest || (turns && s != stance::by_turn) || (wishes.no_waits && s != stance::ahead)) {
            continue;
        }
        const way    w    = best_of(s, n_texts, profile, wishes.n_most);
        const double rate = believed(s, w.rate, n_texts, profile);
        if (w.k > 0 && rate > value * (value > 0.0 ? least_change : 1.0)) {
            value = rate;
            way_  = w;
            now_  = s;
        }
    }
}

pool_orders pool_planner::orders(size_t n_texts, const pair_profile & profile, const pool_wishes & wishes) {
    const int32_t n_most = wishes.n_most;
    sync_                = wishes.sync;
    kind_                = wishes.kind;
    record &   r         = record_of(n_texts);
    const bool again     = r.n_passes++ % n_between == 0 || n_texts != n_texts_ || now_ == stance::rest;
    n_texts_             = n_texts;
    no_waits_            = wishes.no_waits;
    if ((r.n_left > 0 && !wishes.always) || n_most == 0) {
        r.n_left -= r.n_left > 0 ? 1 : 0;
        now_ = stance::rest;
        return {};
    }
    if (again) {
        choose_way(r, n_texts, profile, wishes);
    }
    if (way_.k == 0 && wishes.always) {
        now_   = (shared_ || wishes.sync) && !wishes.no_waits ? stance::by_turn : stance::ahead;
        way_.k = 1;
    }
    if (way_.k == 0) {
        // How good the drafts are shows only when they are tried.
        if (++r.n_no_gain > n_trial) {
            begin_rest(r, profile.pass_us(int32_t(n_texts), false));
        }
        now_ = stance::rest;
        return {};
    }
    r.now       = now_;
    r.n_no_gain = 0;
    if (now_ != stance::by_turn) {
        return {.n_ahead = std::min(2 * n_most + 2, n_ahead_most), .n_branch = 8, .n_wait = way_.k};
    }
    const auto   n     = int32_t(n_texts);
    const double extra = profile.pass_us(n * (way_.k + 1), false) - profile.pass_us(n, false);
    const double row   = std::max(0.0, extra / (n * way_.k));
    const double price = rate(n_texts, profile) * ((n_levels_ > 1 ? 0.0 : profile.step_us(n, false) / n) + row);
    return {.n_ahead    = std::min(n_most, way_.k + 1),
            .n_branch   = 1,
            .n_wait     = way_.k + 1,
            .least_path = float(std::clamp(price, 0.0, 0.9))};
}

// Each rest is longer than the one before, and long enough that trying again would cost little of it. plain_us: of a
// pass without drafts.
void pool_planner::begin_rest(record & r, double plain_us) {
    const double n_paid = plain_us > 0.0 ? r.spent_us / (trial_share * plain_us) : 0.0;
    r.n_rest            = std::clamp(2 * r.n_rest, n_rest_first, n_rest_most);
    r.n_left            = std::max(r.n_rest, uint32_t(std::clamp(n_paid, 0.0, double(n_paid_most))));
    r.n_no_gain         = 0;
    r.spent_us          = 0.0;
    r.own               = {};
}

// Speculation is judged by what it has brought, not by what was expected of it.
void pool_planner::on_pass(const pair_profile & profile, int32_t n_tokens, double us, bool reads) {
    if (now_ == stance::rest || only_.has_value()) {
        return;
    }
    record &     r     = record_of(n_texts_);
    const double plain = profile.pass_us(int32_t(n_texts_), false);
    r.spent_us += us - n_tokens * plain / double(n_texts_);
    if (reads) {
        return;
    }
    pace & own = r.now_own();
    own.add(n_tokens, n_tokens, us);
    const double gain = own.tokens * plain / (double(n_texts_) * own.time_us);
    if ((own.n >= n_judged && gain < least_speedup) || (own.n >= n_glance && gain < poor)) {
        begin_rest(r, plain);
    } else if (own.n == 4 * n_judged) {
        r.n_rest = 0; // it pays
    }
}

} // namespace duo
