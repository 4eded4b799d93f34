#include "pass_times.h"

#include <cmath>
#include <limits>

namespace duo {

namespace {
constexpr int64_t n_recent   = 192;  // passes between two measurements that can be compared
constexpr int32_t n_doubtful = 1024; // passes for which a width's first samples count
constexpr int32_t n_cheap    = 5;    // rows; trying so few costs little
constexpr int32_t n_expected = 4;    // drafted tokens up to which an expected cost counts like a measured one
} // namespace

void pass_times::expect(const pair_prior & prior) {
    prior_ = prior;
    changed();
}

void pass_times::on_pass(int32_t n_rows, int64_t us, double shared) {
    if (n_rows >= 1 && n_rows <= n_rows_cap) {
        (shared < alone_share ? alone_ : together_)[size_t(n_rows)].add(double(us), ++n_passes_);
        changed();
    }
}

// A single sample may have been late. After a while it does not count any more, and its width is tried again.
bool pass_times::counts(const average & a) const {
    return a.n > 2 || (a.n > 0 && n_passes_ - a.i_last < n_doubtful);
}

// Each pass asks for the times of many widths, many times between two measurements. So they are computed here, once.
void pass_times::changed() {
    slowdown_        = find_slowdown();
    of_widths_alone_ = interpolate(alone_);
    of_widths_       = interpolate(together_);
}

pass_times::by_rows pass_times::interpolate(const table & t) const {
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

double pass_times::between(const table & t, int32_t n_rows, const neighbours & near) const {
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

double pass_times::find_slowdown() const {
    // Only recent measurements from about the same time are compared, as the machine's speed changes from minute to
    // minute.
    int64_t last = std::numeric_limits<int64_t>::min();
    for (const average & b : together_) {
        last = b.n > 0 ? std::max(last, b.i_last) : last;
    }
    const auto close = [last](const average & a, const average & b) {
        return a.n > 0 && b.n > 0 && std::abs(a.i_last - b.i_last) <= n_recent && b.i_last >= last - n_recent;
    };
    double beside = 0.0;
    double alone  = 0.0;
    double least  = 1.0;
    for (size_t n = 1; n < alone_.size(); ++n) {
        if (close(alone_[n], together_[n])) {
            const double weight = std::min({alone_[n].n, together_[n].n, 8}) / alone_[n].value;
            beside += weight * together_[n].value;
            alone += weight * alone_[n].value;
        }
        if (close(alone_[1], together_[n])) { // n rows should not take longer than n passes over one row
            least = std::max(least, together_[n].value / (double(n) * alone_[1].value));
        }
    }
    return alone == 0.0 ? least : std::max(least, beside / alone);
}

double pass_times::us(int32_t n_rows, bool beside, bool hopeful) const {
    n_rows                  = std::clamp(n_rows, 1, n_rows_cap);
    const table & this_way  = beside ? together_ : alone_;
    const table & other_way = beside ? alone_ : together_;
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

int32_t pass_times::n_tried() const {
    for (int32_t n = n_rows_cap; n >= 2; --n) {
        if (alone_[size_t(n)].n > 0 || together_[size_t(n)].n > 0) {
            return std::max(n - 1, has_prior() ? n_expected : 0);
        }
    }
    return has_prior() ? n_expected : 0;
}

} // namespace duo
