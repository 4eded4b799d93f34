#include "pair_profile.h"

#include <algorithm>
#include <cmath>

namespace duo {

namespace {
constexpr int32_t n_old       = 100; // passes after which a measurement counts as old
constexpr double  prior_guess = 0.6; // acceptance before anything was seen, worth one observation
constexpr double  prior_ngram = 0.5;
constexpr double  memory      = 0.97; // weight of an observation fades by this with each later one
constexpr double  memory_bin  = 0.99;
constexpr double  own_weight  = 4.0;  // observations that the draft's own estimate is worth
constexpr double  prior_price = 0.05; // of a further node in a draft step, before one was measured
constexpr int64_t n_recent    = 192;  // passes between two measurements that can be compared
constexpr int32_t n_doubtful  = 1024; // passes for which a width's first samples count
constexpr int32_t n_cheap     = 5;    // rows: to try so many costs little
constexpr double  alone_share = 0.25; // passes with less of the draft beside them count as alone
} // namespace

void average::add(double x, int64_t i_pass) {
    const bool old = n > 0 && i_pass - i_last > n_old;
    if (++n <= 3) {
        // Too low a value makes its width attractive and is soon put right; too high a one keeps it from being
        // measured.
        value = n == 1 ? x : std::min(value, x);
    } else if (old) {
        value = std::min(x, 0.5 * (value + std::min(x, 1.5 * value)));
    } else {
        // One pass that something else held up says little: it counts as a quarter too slow.
        value += 0.15 * (std::min(x, 1.25 * value) - value);
    }
    i_last = i_pass;
}

void odds::add(bool right, double memory) {
    yes = yes * memory + (right ? 1.0 : 0.0);
    no  = no * memory + (right ? 0.0 : 1.0);
}

void pair_profile::on_pass(int32_t n_rows, int64_t us, double shared) {
    if (n_rows >= 1 && n_rows <= n_rows_cap) {
        (shared < alone_share ? alone_ : beside_)[size_t(n_rows)].add(double(us), ++n_passes_);
    }
}

void pair_profile::on_step(int32_t n_rows, float us) {
    if (us > 0.0f && n_rows >= 1) {
        step_[size_t(std::min(n_rows, n_step_cap))].add(double(us), n_passes_);
    }
}

void pair_profile::on_guess(int32_t i, bool right, bool fresh) {
    if (i >= 0 && i < n_draft_cap) {
        level_[size_t(i)].add(right, memory);
    }
    if (i == 0 && fresh) {
        fresh_.add(right, memory);
    }
}

void pair_profile::on_ngram(int32_t i, bool right) {
    if (i >= 0 && i < n_draft_cap) {
        ngram_[size_t(i)].add(right, memory);
    }
}

// Half a unit of log-odds wide.
int32_t pair_profile::bin(float logp) {
    const double p = std::clamp(std::exp(double(logp)), 1e-4, 1.0 - 1e-4);
    return std::clamp(int32_t(std::lround(2.0 * std::log(p / (1.0 - p)))) + n_bins / 2, 0, n_bins - 1);
}

void pair_profile::on_child(float logp, bool right) {
    bin_[size_t(bin(logp))].add(right, memory_bin);
}

double pair_profile::chance(float logp) const {
    return std::clamp(bin_[size_t(bin(logp))].share(std::exp(double(logp)), own_weight), 0.001, 0.995);
}

// Levels that were seen little lean on the one before them.
double pair_profile::acceptance(int32_t i) const {
    double a = prior_guess;
    for (int32_t j = 0; j <= std::min(i, n_draft_cap - 1); ++j) {
        a = level_[size_t(j)].share(a, 1.0);
    }
    return a;
}

double pair_profile::acceptance_fresh() const {
    return fresh_.share(acceptance(0), 1.0);
}

double pair_profile::ngram_chance(int32_t i) const {
    double a = prior_ngram;
    for (int32_t j = 0; j <= std::min(i, n_draft_cap - 1); ++j) {
        a = ngram_[size_t(j)].share(a, 1.0);
    }
    return std::clamp(a, 0.001, 0.995);
}

// A single sample may have been late: after a while it does not count any more, and its width is tried again.
bool pair_profile::counts(const average & a) const {
    return a.n > 2 || (a.n > 0 && n_passes_ - a.i_last < n_doubtful);
}

double pair_profile::interpolate(const table & t, int32_t n_rows) const {
    int32_t first = 0;
    int32_t below = 0;
    int32_t under = 0; // measured below `below`
    int32_t above = 0;
    double  most  = 0.0; // what a wider pass took, which this one does not exceed; 0: none
    for (int32_t n = 1; n <= n_rows_cap; ++n) {
        if (!counts(t[size_t(n)])) {
            continue;
        }
        first = first == 0 ? n : first;
        if (n <= n_rows) {
            under = below;
            below = n;
        } else {
            above = above == 0 ? n : above;
            most  = most == 0.0 ? t[size_t(n)].value : std::min(most, t[size_t(n)].value);
        }
    }
    const auto at = [&](int32_t n) { return most == 0.0 ? t[size_t(n)].value : std::min(most, t[size_t(n)].value); };
    if (below == 0) {
        return most;
    }
    if (below == n_rows) {
        return at(below);
    }
    if (above != 0) {
        return at(below) + std::max(0.0, at(above) - at(below)) * (n_rows - below) / (above - below);
    }
    // Beyond what was measured: along the steeper of the lines through the ends and through the last two; flat while
    // only one width is known, so that it is tried.
    double slope = below > first ? std::max(0.0, (at(below) - at(first)) / (below - first)) : 0.0;
    slope        = under > 0 ? std::max(slope, (at(below) - at(under)) / (below - under)) : slope;
    return at(below) + slope * (n_rows - below);
}

double pair_profile::slowdown() const {
    // Only what was measured lately and at about the same time is compared: machines have slower and faster minutes.
    int64_t last = 0;
    for (const average & b : beside_) {
        last = b.n > 0 ? std::max(last, b.i_last) : last;
    }
    const auto close = [last](const average & a, const average & b) {
        return a.n > 0 && b.n > 0 && std::abs(a.i_last - b.i_last) <= n_recent && b.i_last >= last - n_recent;
    };
    double beside = 0.0;
    double alone  = 0.0;
    double least  = 1.0;
    for (size_t n = 1; n < alone_.size(); ++n) {
        if (close(alone_[n], beside_[n])) {
            const double weight = std::min({alone_[n].n, beside_[n].n, 8}) / alone_[n].value;
            beside += weight * beside_[n].value;
            alone += weight * alone_[n].value;
        }
        if (close(alone_[1], beside_[n])) { // n rows never take longer than n passes over one
            least = std::max(least, beside_[n].value / (double(n) * alone_[1].value));
        }
    }
    return alone == 0.0 ? least : std::max(least, beside / alone);
}

double pair_profile::pass_us(int32_t n_rows, bool beside, bool hopeful) const {
    n_rows              = std::clamp(n_rows, 1, n_rows_cap);
    const table & here  = beside ? beside_ : alone_;
    const table & there = beside ? alone_ : beside_;
    // More rows never cost less: that would be noise.
    const auto least = [this, n_rows](const table & t) { return std::max(interpolate(t, 1), interpolate(t, n_rows)); };
    if (here[size_t(n_rows)].n > 0) {
        return least(here);
    }
    // Not measured in this way: as measured in the other, scaled by what the two have in common, or by the widths that
    // are known. Where that factor is far from 1 and the width small, the lower of the two: it is tried and known then.
    const double slow  = slowdown();
    const double other = least(there) * (beside ? slow : 1.0 / slow);
    const double own   = least(here);
    if (own == 0.0 || other == 0.0) {
        return std::max(own, other);
    }
    if (hopeful && n_rows <= n_cheap && slow > 1.1) {
        return std::min(own, other);
    }
    return there[size_t(n_rows)].n > 0 ? other : std::max(own, other);
}

double pair_profile::step_us(int32_t n_rows) const {
    n_rows          = std::clamp(n_rows, 1, n_step_cap);
    int32_t nearest = 0;
    for (int32_t n = 1; n <= n_step_cap; ++n) {
        if (step_[size_t(n)].n > 0 && (nearest == 0 || std::abs(n - n_rows) < std::abs(nearest - n_rows))) {
            nearest = n;
        }
    }
    if (nearest == 0) {
        return 0.0;
    }
    const double price = branch_price();
    return step_[size_t(nearest)].value * (1.0 + price * (n_rows - 1)) / (1.0 + price * (nearest - 1));
}

// Slope between a step over one and wider ones, each weighed by how much it says about the slope.
double pair_profile::branch_price() const {
    const average & one = step_[1];
    double          sum = prior_price;
    double          n   = 1.0;
    for (int32_t i = 2; i <= n_step_cap && one.n > 0; ++i) {
        const average & a = step_[size_t(i)];
        if (a.n > 0) {
            const double weight = double(i - 1) * std::min(a.n, 16);
            sum += weight * std::max(0.0, (a.value / one.value - 1.0) / (i - 1));
            n += weight;
        }
    }
    return sum / n;
}

int32_t pair_profile::n_tried() const {
    for (int32_t n = n_rows_cap; n >= 2; --n) {
        if (alone_[size_t(n)].n > 0 || beside_[size_t(n)].n > 0) {
            return n - 1;
        }
    }
    return 0;
}

std::vector<double> pair_profile::saved() const {
    std::vector<double> out;
    const auto put_average = [&out](const average & a) { out.insert(out.end(), {a.value, double(std::min(a.n, 8))}); };
    const auto put_odds    = [&out](const odds & o) { out.insert(out.end(), {o.yes, o.no}); };
    std::for_each(alone_.begin(), alone_.end(), put_average);
    std::for_each(beside_.begin(), beside_.end(), put_average);
    std::for_each(step_.begin(), step_.end(), put_average);
    std::for_each(level_.begin(), level_.end(), put_odds);
    std::for_each(ngram_.begin(), ngram_.end(), put_odds);
    std::for_each(bin_.begin(), bin_.end(), put_odds);
    put_odds(fresh_);
    return out;
}

void pair_profile::restore(const std::vector<double> & numbers) {
    if (numbers.size() != saved().size() ||
        !std::all_of(numbers.begin(), numbers.end(), [](double x) { return std::isfinite(x) && x >= 0.0; })) {
        return;
    }
    // Averages come first, as (value, samples): a time is at least a microsecond and at most some minutes.
    const size_t n_averages = alone_.size() + beside_.size() + step_.size();
    for (size_t i = 0; i < n_averages; ++i) {
        if (numbers[2 * i + 1] > 0.0 && !(numbers[2 * i] >= 1.0 && numbers[2 * i] <= 1e9)) {
            return;
        }
    }
    auto       it          = numbers.begin();
    const auto get_average = [&it](average & a) {
        a = {.value = it[0], .n = int32_t(std::min(it[1], 8.0))};
        it += 2;
    };
    const auto get_odds = [&it](odds & o) {
        o = {.yes = it[0], .no = it[1]};
        it += 2;
    };
    std::for_each(alone_.begin(), alone_.end(), get_average);
    std::for_each(beside_.begin(), beside_.end(), get_average);
    std::for_each(step_.begin(), step_.end(), get_average);
    std::for_each(level_.begin(), level_.end(), get_odds);
    std::for_each(ngram_.begin(), ngram_.end(), get_odds);
    std::for_each(bin_.begin(), bin_.end(), get_odds);
    get_odds(fresh_);
}

} // namespace duo
