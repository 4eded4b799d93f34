#include "planner.h"

#include <algorithm>

namespace duo {

namespace {
constexpr int32_t n_auto_max    = 16;  // --draft auto looks no further
constexpr int32_t n_first_width = 4;   // look-ahead before anything is measured
constexpr int32_t n_alone       = 2;   // passes over one row before auto tries more: what a pass costs comes first
constexpr int32_t n_recheck     = 100; // passes until auto measures one row again, and a measurement counts as old
constexpr int32_t n_retry_first = 64;  // passes without speculation before it is tried again; doubles up to
constexpr int32_t n_retry_last  = 1024;
constexpr double  least_gain    = 1.05; // auto speculates only for more than measurement noise
constexpr double  prior_yes     = 0.6;  // acceptance 0.6, worth one observation
constexpr double  prior_no      = 0.4;
constexpr double  memory        = 0.97; // weight of an observation fades by this with each later one
constexpr int64_t wait_least_us = 2000; // a wait ends only when the draft is clearly late, not merely slow
constexpr int64_t wait_sync_us  = 250000;
constexpr int64_t wait_factor   = 4;
} // namespace

void planner::average::add(double x, int64_t i_pass) {
    // Too low a value makes its width attractive and is soon put right; too high a one keeps it from being measured.
    const bool lower = ++n <= 3 || i_pass - i_last > n_recheck;
    value            = n == 1 ? x : lower ? std::min(value, x) : value + 0.15 * (x - value);
    i_last           = i_pass;
}

void planner::begin(const plan_params & params) {
    params_  = params;
    n_max_   = params.mode == run_mode::plain ? 0 : params.n_max == n_draft_auto ? n_auto_max : params.n_max;
    n_max_   = std::clamp(n_max_, 0, n_draft_cap);
    n_last_  = std::min(n_max_, n_first_width);
    n_off_   = 0;
    n_retry_ = n_retry_first;
}

plan planner::next(int32_t n_ready, int32_t n_room, bool growing) {
    const int32_t m_max = std::min(n_max_, n_room);
    if (m_max <= 0) {
        return {};
    }
    if (adaptive() && !params_.always && pass_[1].n > 0 && n_passes_ - pass_[1].i_last > n_recheck) {
        return {}; // the yardstick is old: all that is decided here is measured by it
    }
    plan p{.n_verify = best_width(n_ready, m_max, growing)};
    if (p.n_verify > 0) {
        n_off_ = 0;
    } else if (adaptive() && ++n_off_ >= n_retry_ && n_ready > 0 && 1.0 + acceptance(0) > least_gain) {
        p.n_verify = std::min({n_ready, m_max, std::max(1, params_.n_min)}); // perhaps passes got cheaper
        n_off_     = 0;
        n_retry_   = std::min(2 * n_retry_, n_retry_last);
    }
    if (p.n_verify > n_ready && growing) {
        const auto expected = int64_t((p.n_verify - n_ready) * step_us_);
        p.wait_us = std::max(params_.mode == run_mode::sync ? wait_sync_us : wait_least_us, wait_factor * expected);
    }
    n_last_ = p.n_verify;
    return p;
}

int32_t planner::best_width(int32_t n_ready, int32_t m_max, bool growing) const {
    if (!adaptive()) {
        return m_max; // turn-taking as everybody does it: always so many
    }
    // Without this yardstick v(1) would be guessed from wider passes, and a v(n) that never pays would go unnoticed.
    if (pass_[1].n < n_alone && !params_.always) {
        return 0;
    }
    int32_t best      = 0;
    double  best_rate = 0.0;
    if (!params_.always) {
        // A width that costs dear is met in small steps, from the least that is ever verified.
        m_max     = std::min(m_max, std::max(int32_t(2.0 * n_tried()), params_.n_min));
        best_rate = least_gain * rate(0, n_ready);
    }
    for (int32_t m = std::max(params_.n_min, 1); m <= m_max && (m <= n_ready || growing); ++m) {
        const double r = rate(m, n_ready);
        if (r > best_rate) {
            best      = m;
            best_rate = r;
        }
    }
    return best;
}

// The most drafted tokens that a measured pass had; at least one half, so that twice it is one.
double planner::n_tried() const {
    for (size_t n = pass_.size() - 1; n >= 2; --n) {
        if (pass_[n].n > 0) {
            return double(n - 1);
        }
    }
    return 0.5;
}

int16_t planner::look_ahead() const {
    if (params_.mode == run_mode::sync) {
        return int16_t(std::max(1, best_width(0, n_max_, true)));
    }
    if (params_.n_ahead > 0) {
        return int16_t(params_.n_ahead);
    }
    // Twice what is verified, so that the chain goes on behind an accepted one; while speculation does not pay, one
    // level keeps the acceptance measured.
    const int32_t n = n_last_;
    return int16_t(n == 0 && pass_[1].n >= n_alone ? 1 : 2 * std::max(n, 1) + 2);
}

void planner::on_pass(int32_t n_rows, int64_t us) {
    if (n_rows >= 1 && n_rows < int32_t(pass_.size())) {
        pass_[size_t(n_rows)].add(double(us), ++n_passes_);
    }
}

void planner::on_step(float us) {
    if (us > 0.0f) {
        step_us_ = step_us_ == 0.0 ? us : step_us_ + 0.1 * (us - step_us_);
    }
}

void planner::on_accept(int32_t i, bool accepted) {
    if (i < 0 || i >= n_draft_cap) {
        return;
    }
    odds & o = odds_[size_t(i)];
    o.yes    = o.yes * memory + (accepted ? 1.0 : 0.0);
    o.no     = o.no * memory + (accepted ? 0.0 : 1.0);
}

double planner::acceptance(int32_t i) const {
    // Positions that were seen little lean on the one before them.
    double before = prior_yes / (prior_yes + prior_no);
    double a      = before;
    for (int32_t j = 0; j <= std::min(i, n_draft_cap - 1); ++j) {
        const odds & o      = odds_[size_t(j)];
        const double weight = prior_yes + prior_no;
        a                   = (o.yes + weight * before) / (o.yes + o.no + weight);
        before              = a;
    }
    return a;
}

double planner::pass_us(int32_t n_rows) const {
    int32_t below = 0;
    int32_t above = 0;
    for (int32_t n = 1; n < int32_t(pass_.size()); ++n) {
        if (pass_[size_t(n)].n == 0) {
            continue;
        }
        if (n <= n_rows) {
            below = n;
        } else {
            above = n;
            break;
        }
    }
    const auto at = [this](int32_t n) { return pass_[size_t(n)].value; };
    if (below == 0) {
        return above == 0 ? 0.0 : at(above);
    }
    if (below == n_rows) {
        return at(below);
    }
    if (above != 0) {
        return at(below) + (at(above) - at(below)) * (n_rows - below) / (above - below);
    }
    // Beyond what was measured: along the line through the ends; flat while only one width is known, so that it is
    // tried.
    const int32_t first =
        int32_t(std::find_if(pass_.begin(), pass_.end(), [](const average & p) { return p.n > 0; }) - pass_.begin());
    const double slope = below > first ? std::max(0.0, (at(below) - at(first)) / (below - first)) : 0.0;
    return at(below) + slope * (n_rows - below);
}

double planner::rate(int32_t m, int32_t n_ready) const {
    double e = 1.0;
    double p = 1.0;
    for (int32_t i = 0; i < m; ++i) {
        p *= acceptance(i);
        e += p;
    }
    const double wait = std::max(0, m - n_ready) * step_us_;
    const double pass = std::max({1.0, pass_us(1), pass_us(m + 1)}); // more rows never cost less: that is noise
    return e / (wait + pass);
}

} // namespace duo
