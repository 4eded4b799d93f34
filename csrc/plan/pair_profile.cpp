#include "pair_profile.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace duo {

namespace {
constexpr double  prior_price = 0.05;    // of a further node in a draft step, before one was measured
constexpr int64_t n_forgotten = 1000000; // passes; older measurements are saved with this age
} // namespace

void pair_profile::expect(const pair_prior & prior) {
    passes_.expect(prior);
    ++n_changes_;
}

void pair_profile::forget() {
    pair_profile fresh;
    fresh.expect(passes_.prior());
    fresh.n_changes_ = n_changes_ + 1;
    *this            = std::move(fresh);
}

void pair_profile::on_pass(int32_t n_rows, int64_t us, double shared) {
    passes_.on_pass(n_rows, us, shared);
    ++n_changes_;
}

void pair_profile::on_step(int32_t n_rows, float us, double shared) {
    draft_.on_step(n_rows, us, shared, passes_.n_passes());
    ++n_changes_;
}

void pair_profile::exchange_draft(draft_profile & other) {
    std::swap(draft_, other);
    ++n_changes_;
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
    const double own = nearest_step(beside ? draft_.beside : draft_.alone, n_rows);
    if (own > 0.0) {
        return own;
    }
    const double other = nearest_step(beside ? draft_.alone : draft_.beside, n_rows);
    const double slow  = beside ? passes_.slowdown() : 1.0 / passes_.slowdown();
    return other > 0.0 ? other * slow : passes_.prior().step_us * (1.0 + branch_price() * (n_rows - 1));
}

// The slope of step times by width. Each width is weighted by how much it says about the slope.
double pair_profile::branch_price() const {
    double sum = prior_price;
    double n   = 1.0;
    for (const step_table * t : {&draft_.alone, &draft_.beside}) {
        const average & one = (*t)[1];
        for (int32_t i = 2; i <= n_step_cap && one.n > 0; ++i) {
            const average & a = (*t)[size_t(i)];
            if (a.n > 0) {
                const double weight = double(i - 1) * std::min(a.n, 16);
                sum += weight * std::max(0.0, (a.value / one.value - 1.0) / (i - 1));
                n += weight;
            }
        }
    }
    return sum / n;
}

// Calls f(average &) for all of them, always in the same order.
template <typename Self, typename F> void pair_profile::each_average(Self & self, const F & f) {
    pass_times::each(self.passes_, f);
    std::for_each(self.draft_.alone.begin(), self.draft_.alone.end(), f);
    std::for_each(self.draft_.beside.begin(), self.draft_.beside.end(), f);
}

std::vector<double> pair_profile::saved() const {
    std::vector<double> out;
    each_average(*this, [this, &out](const average & a) {
        const int64_t age = a.n > 0 ? std::min(passes_.n_passes() - a.i_last, n_forgotten) : 0;
        out.insert(out.end(), {a.value, double(std::min(a.n, 8)), double(age)});
    });
    for (const guess_record & r : draft_.guesses) {
        guess_record::each(r, [&out](const odds & o) { out.insert(out.end(), {o.yes, o.no}); });
        const double weight = r.sharp().weight(); // of all that was saved, 0 means that nothing is known
        out.insert(out.end(), {weight > 0.0 ? r.sharp().power() : 0.0, weight});
        const double known = r.trusted().weight();
        out.insert(out.end(), {known > 0.0 ? r.trusted().power() : 0.0, known});
    }
    for (const text_gains & g : draft_.gains) {
        const auto numbers = g.saved();
        out.insert(out.end(), numbers.begin(), numbers.end());
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
        a = {.value = it[0], .n = int32_t(std::min(it[1], 8.0)), .i_last = passes_.n_passes() - int64_t(it[2])};
        it += 3;
    });
    for (guess_record & r : draft_.guesses) {
        guess_record::each(r, [&it](odds & o) {
            o = {.yes = it[0], .no = it[1]};
            it += 2;
        });
        r.restore(it[1] > 0.0 ? sharpness::restored(it[0], it[1]) : sharpness(),
                  it[3] > 0.0 ? trust::restored(it[2], it[3]) : trust());
        it += 4;
    }
    for (text_gains & g : draft_.gains) {
        g = text_gains::restored(std::span<const double, text_gains::n_saved>(it, text_gains::n_saved));
        it += text_gains::n_saved;
    }
    passes_.restored();
    ++n_changes_;
    return true;
}

} // namespace duo
