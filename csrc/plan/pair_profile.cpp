#include "pair_profile.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace duo {

namespace {
constexpr double  prior_price = 0.05;    // of a further node in a draft step, before one was measured
constexpr int64_t n_recent    = 192;     // passes between two measurements that can be compared
constexpr int32_t n_doubtful  = 1024;    // passes for which a width's first samples count
constexpr int32_t n_cheap     = 5;       // rows; trying so few costs little
constexpr int32_t n_expected  = 4;       // drafted tokens up to which an expected cost counts like a measured one
constexpr int64_t n_forgotten = 1000000; // passes; older measurements are saved with this age
} // namespace

void pair_profile::expect(pair_prior prior) {
    prior_ = std::move(prior);
    together_.resize(std::max<size_t>(1, prior_.splits.size()));
    draft_.beside.resize(together_.size());
    changed();
}

void pair_profile::forget() {
    pair_profile fresh;
    fresh.expect(std::move(prior_));
    fresh.n_changes_ = n_changes_ + 1;
    *this            = std::move(fresh);
}

void pair_profile::on_pass(int32_t n_rows, int64_t us, double shared) {
    if (n_rows >= 1 && n_rows <= n_rows_cap) {
        (shared < alone_share ? alone_ : together_[split_])[size_t(n_rows)].add(double(us), ++n_passes_);
        changed();
    }
}

void pair_profile::on_step(int32_t n_rows, float us, double shared) {
    draft_.on_step(n_rows, us, shared, split_, n_passes_);
    ++n_changes_;
}

void pair_profile::exchange_draft(draft_profile & other) {
    other.beside.resize(together_.size()); // first what may throw
    std::swap(draft_, other);
    ++n_changes_;
}

// A single sample may have been late. After a while it does not count any more, and its width is tried again.
bool pair_profile::counts(const average & a) const {
    return a.n > 2 || (a.n > 0 && n_passes_ - a.i_last < n_doubtful);
}

// Each pass asks for the times of many widths, many times between two measurements. So they are computed here, once.
void pair_profile::changed() {
    ++n_changes_;
    slowdown_        = find_slowdown();
    of_widths_alone_ = interpolate(alone_);
    of_widths_       = interpolate(pass_together());
}

pair_profile::by_rows pair_profile::interpolate(const table & t) const {
    std::array<int32_t, n_rows_cap + 1> known{}; // measured widths
    size_t                              n_known = 0;
    for (int32_t n = 1; n <= n_rows_cap; ++n) {
        if (counts(t[size_t(n)])) {
            known[n_known++] = n;
        }
    }
    std::array<double, n_rows_cap + 1> most{}; // smallest time of known[i] and wider passes; 0: none
    for (size_t i = n_known; i-- > 0;) {
        const double us = t[size_t(known[i])].value;
        most[i]         = most[i + 1] == 0.0 ? us : std::min(most[i + 1], us);
    }
    by_rows out{};
    size_t  i = 0; // the first known width above n_rows
    for (int32_t n_rows = 1; n_known > 0 && n_rows <= n_rows_cap; ++n_rows) {
        i += i < n_known && known[i] == n_rows ? 1 : 0;
        out[size_t(n_rows)] = between(t, n_rows,
                                      {.first = known[0],
                                       .under = i > 1 ? known[i - 2] : 0,
                                       .below = i > 0 ? known[i - 1] : 0,
                                       .above = i < n_known ? known[i] : 0,
                                       .most  = most[i]});
    }
    return out;
}

double pair_profile::between(const table & t, int32_t n_rows, const neighbours & near) const {
    const auto [first, under, below, above, most] = near;
    const auto at                                 = [&t, most = most](int32_t n) {
        return most == 0.0 ? t[size_t(n)].value : std::min(most, t[size_t(n)].value);
    };
    // Scales a measured width to another one by the expected times of the two.
    const auto shaped = [this, n_rows](double us, int32_t n) { return us * prior_.pass(n_rows) / prior_.pass(n); };
    if (below == 0) {
        return most == 0.0 || !has_prior() ? most : std::min(most, shaped(t[size_t(above)].value, above));
    }
    if (below == n_rows) {
        return at(below);
    }
    if (above != 0) {
        const double share = double(n_rows - below) / (above - below);
        if (has_prior()) { // between the two: interpolates the ratio of measured to expected time
            return shaped(at(below), below) * (1.0 - share) + shaped(at(above), above) * share;
        }
        return at(below) + std::max(0.0, at(above) - at(below)) * share;
    }
    if (has_prior()) {
        return shaped(at(below), below);
    }
    // Beyond the measured widths it goes on along a line: through the ends or through the last two, whichever is
    // steeper. With one known width the line is flat, so that wider passes get tried.
    double slope = below > first ? std::max(0.0, (at(below) - at(first)) / (below - first)) : 0.0;
    slope        = under > 0 ? std::max(slope, (at(below) - at(under)) / (below - under)) : slope;
    return at(below) + slope * (n_rows - below);
}

double pair_profile::find_slowdown() const {
    // Only recent measurements from about the same time are compared, as the machine's speed changes from minute to
    // minute.
    int64_t last = std::numeric_limits<int64_t>::min();
    for (const average & b : pass_together()) {
        last = b.n > 0 ? std::max(last, b.i_last) : last;
    }
    const auto close = [last](const average & a, const average & b) {
        return a.n > 0 && b.n > 0 && std::abs(a.i_last - b.i_last) <= n_recent && b.i_last >= last - n_recent;
    };
    double beside = 0.0;
    double alone  = 0.0;
    double least  = 1.0;
    for (size_t n = 1; n < alone_.size(); ++n) {
        if (close(alone_[n], pass_together()[n])) {
            const double weight = std::min({alone_[n].n, pass_together()[n].n, 8}) / alone_[n].value;
            beside += weight * pass_together()[n].value;
            alone += weight * alone_[n].value;
        }
        if (close(alone_[1], pass_together()[n])) { // n rows should not take longer than n passes over one row
            least = std::max(least, pass_together()[n].value / (double(n) * alone_[1].value));
        }
    }
    return alone == 0.0 ? least : std::max(least, beside / alone);
}

double pair_profile::pass_us(int32_t n_rows, bool beside, bool hopeful) const {
    n_rows                  = std::clamp(n_rows, 1, n_rows_cap);
    const table & this_way  = beside ? pass_together() : alone_;
    const table & other_way = beside ? alone_ : pass_together();
    // More rows never cost less; a measurement that says so is noise.
    const auto   least = [n_rows](const by_rows & us) { return std::max(us[1], us[size_t(n_rows)]); };
    const double own   = least(beside ? of_widths_ : of_widths_alone_);
    if (this_way[size_t(n_rows)].n > 0) {
        return own;
    }
    // Not measured in this way (alone or beside): takes the time measured in the other way, scaled by the slowdown, or
    // goes by other widths. If the slowdown is large and the width is small, the lower time is taken, so that the width
    // gets tried and measured.
    const double slow  = slowdown();
    const double other = least(beside ? of_widths_alone_ : of_widths_) * (beside ? slow : 1.0 / slow);
    if (own == 0.0 && other == 0.0) {
        return prior_.pass(n_rows);
    }
    if (own == 0.0 || other == 0.0) {
        return std::max(own, other);
    }
    if (hopeful && n_rows <= n_cheap && slow > 1.1) {
        return std::min(own, other);
    }
    return other_way[size_t(n_rows)].n > 0 ? other : std::max(own, other);
}

// The time of the nearest measured width, plus or minus the price of each node of difference. 0: none was measured.
double pair_profile::nearest_step(const step_table & t, int32_t n_rows) const {
    int32_t nearest = 0;
    for (int32_t n = 1; n <= n_step_cap; ++n) {
        if (t[size_t(n)].n > 0 && (nearest == 0 || std::abs(n - n_rows) < std::abs(nearest - n_rows))) {
            nearest = n;
        }
    }
    const double price = branch_price();
    return t[size_t(nearest)].value * (1.0 + price * (n_rows - 1)) / (1.0 + price * (nearest - 1));
}

double pair_profile::step_us(int32_t n_rows, bool beside) const {
    n_rows           = std::clamp(n_rows, 1, n_step_cap);
    const double own = nearest_step(beside ? step_together() : draft_.alone, n_rows);
    if (own > 0.0) {
        return own;
    }
    const double other = nearest_step(beside ? draft_.alone : step_together(), n_rows);
    const double slow  = beside ? slowdown() : 1.0 / slowdown();
    return other > 0.0 ? other * slow : prior_.step_us * (1.0 + branch_price() * (n_rows - 1));
}

// The slope of step times by width. Each width is weighted by how much it says about the slope.
double pair_profile::branch_price() const {
    double sum = prior_price;
    double n   = 1.0;
    for (const step_table & t : {draft_.alone, step_together()}) {
        const average & one = t[1];
        for (int32_t i = 2; i <= n_step_cap && one.n > 0; ++i) {
            const average & a = t[size_t(i)];
            if (a.n > 0) {
                const double weight = double(i - 1) * std::min(a.n, 16);
                sum += weight * std::max(0.0, (a.value / one.value - 1.0) / (i - 1));
                n += weight;
            }
        }
    }
    return sum / n;
}

int32_t pair_profile::n_tried() const {
    for (int32_t n = n_rows_cap; n >= 2; --n) {
        if (alone_[size_t(n)].n > 0 || pass_together()[size_t(n)].n > 0) {
            return std::max(n - 1, has_prior() ? n_expected : 0);
        }
    }
    return has_prior() ? n_expected : 0;
}

// Calls f(average &) for all of them, always in the same order.
template <typename Self, typename F> void pair_profile::each_average(Self & self, const F & f) {
    std::for_each(self.alone_.begin(), self.alone_.end(), f);
    std::for_each(self.draft_.alone.begin(), self.draft_.alone.end(), f);
    for (size_t i = 0; i < self.together_.size(); ++i) {
        std::for_each(self.together_[i].begin(), self.together_[i].end(), f);
        std::for_each(self.draft_.beside[i].begin(), self.draft_.beside[i].end(), f);
    }
}

std::vector<double> pair_profile::saved() const {
    std::vector<double> out;
    each_average(*this, [this, &out](const average & a) {
        const int64_t age = a.n > 0 ? std::min(n_passes_ - a.i_last, n_forgotten) : 0;
        out.insert(out.end(), {a.value, double(std::min(a.n, 8)), double(age)});
    });
    for (const guess_record & r : draft_.guesses) {
        guess_record::each(r, [&out](const odds & o) { out.insert(out.end(), {o.yes, o.no}); });
        const double weight = r.sharp().weight(); // of all that was saved, 0 means that nothing is known
        out.insert(out.end(), {weight > 0.0 ? r.sharp().power() : 0.0, weight});
    }
    return out;
}

bool pair_profile::restore(std::span<const double> numbers) {
    if (numbers.size() != saved().size() ||
        !std::all_of(numbers.begin(), numbers.end(), [](double x) { return std::isfinite(x) && x >= 0.0; })) {
        return false;
    }
    // Averages come first, as (value, samples, passes since): a time is at least a microsecond and at most some
    // minutes.
    size_t n_averages = 0;
    each_average(*this, [&n_averages](const average &) { ++n_averages; });
    for (size_t i = 0; i < n_averages; ++i) {
        const auto a = numbers.subspan(3 * i, 3);
        if (a[1] > 0.0 && !(a[0] >= 1.0 && a[0] <= 1e9 && a[2] <= double(n_forgotten))) {
            return false;
        }
    }
    auto it = numbers.begin();
    each_average(*this, [this, &it](average & a) {
        a = {.value = it[0], .n = int32_t(std::min(it[1], 8.0)), .i_last = n_passes_ - int64_t(it[2])};
        it += 3;
    });
    for (guess_record & r : draft_.guesses) {
        guess_record::each(r, [&it](odds & o) {
            o = {.yes = it[0], .no = it[1]};
            it += 2;
        });
        r.restore(it[1] > 0.0 ? sharpness::restored(it[0], it[1]) : sharpness());
        it += 2;
    }
    changed();
    return true;
}

} // namespace duo
