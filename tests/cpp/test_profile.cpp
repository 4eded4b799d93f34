// What pair_profile makes of measurements: times and chances.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "check.h"
#include "plan/pair_profile.h"
#include "random.h"

using namespace duo;
using namespace duo_test;

namespace {

void measure(pair_profile & p, int32_t n_rows, int64_t us, double shared, int n) {
    for (int i = 0; i < n; ++i) {
        p.on_pass(n_rows, us, shared);
    }
}

bool near(double x, double want, double tolerance) {
    return std::abs(x - want) <= tolerance * std::abs(want);
}

} // namespace

TEST(average_of_first_samples) {
    // The first pass of a shape may pay for its set-up: the smallest of the first three counts.
    pair_profile p;
    measure(p, 1, 900000, 0.0, 1);
    measure(p, 1, 10000, 0.0, 1);
    measure(p, 1, 10500, 0.0, 1);
    CHECK_EQ(p.pass_us(1, false), 10000.0);
    measure(p, 1, 20000, 0.0, 50); // and it follows the machine afterwards
    CHECK(p.pass_us(1, false) > 19000.0 && p.pass_us(1, false) <= 20000.0);
    measure(p, 1, 8000, 0.0, 50);
    CHECK(p.pass_us(1, false) < 8500.0);
}

TEST(average_is_not_spoilt_by_one) {
    for (const int64_t late : {50000, 5000000}) {
        pair_profile p;
        measure(p, 4, 10000, 0.0, 10);
        measure(p, 4, late, 0.0, 1);
        CHECK(p.pass_us(4, false) < 10500.0, std::to_string(p.pass_us(4, false)));
        double sum = 0.0;
        for (int i = 0; i < 400; ++i) {
            measure(p, 4, i % 20 == 0 ? late : 10000, 0.0, 1);
            sum += p.pass_us(4, false);
        }
        CHECK(sum / 400 < 10600.0, std::to_string(sum / 400));
    }
}

TEST(average_that_is_old) {
    // What was measured long ago is corrected at once if it was too much.
    pair_profile p;
    measure(p, 8, 60000, 0.0, 5);
    measure(p, 1, 10000, 0.0, 150);
    measure(p, 8, 20000, 0.0, 1);
    CHECK_EQ(p.pass_us(8, false), 20000.0);
}

TEST(average_that_is_measured_rarely_follows) {
    // The yardstick is taken every few hundred passes; it has to rise with the machine all the same.
    pair_profile p;
    measure(p, 1, 10000, 0.0, 5);
    for (int i = 0; i < 30; ++i) {
        measure(p, 6, 30000, 1.0, 250);
        measure(p, 1, 20000, 0.0, 1);
    }
    CHECK(p.pass_us(1, false) > 18000.0, std::to_string(p.pass_us(1, false)));
}

TEST(times_between_widths) {
    pair_profile p;
    CHECK_EQ(p.pass_us(1, false), 0.0);
    CHECK_EQ(p.pass_us(9, true), 0.0);
    CHECK_EQ(p.passes().n_tried(), 0);
    measure(p, 1, 10000, 0.0, 3);
    CHECK_EQ(p.pass_us(5, false), 10000.0); // flat, so that it is tried
    measure(p, 9, 30000, 0.0, 3);
    CHECK_EQ(p.passes().n_tried(), 8);
    for (int32_t n = 1; n <= 9; ++n) {
        CHECK(near(p.pass_us(n, false), 10000.0 + 2500.0 * (n - 1), 1e-9), std::to_string(n));
    }
    CHECK(near(p.pass_us(17, false), 50000.0, 1e-9)); // along the line
    CHECK_EQ(p.pass_us(0, false), 10000.0);
    CHECK_EQ(p.pass_us(1000, false), p.pass_us(n_rows_cap, false));
    // Nothing outside is measured.
    measure(p, 0, 1, 0.0, 3);
    measure(p, -1, 1, 0.0, 3);
    measure(p, n_rows_cap + 1, 1, 0.0, 3);
    CHECK_EQ(p.pass_us(1, false), 10000.0);
    // A wide pass that looks cheaper than a single row: the single row was held up.
    pair_profile q;
    measure(q, 1, 10000, 0.0, 3);
    measure(q, 4, 8000, 0.0, 3);
    CHECK_EQ(q.pass_us(1, false), 8000.0);
    CHECK_EQ(q.pass_us(4, false), 8000.0);
    CHECK_EQ(q.pass_us(8, false), 8000.0);
}

TEST(slowdown_of_two_at_once) {
    pair_profile p;
    CHECK_EQ(p.passes().slowdown(), 1.0);
    measure(p, 1, 10000, 0.0, 5);
    CHECK_EQ(p.passes().slowdown(), 1.0);
    CHECK_EQ(p.pass_us(1, true), 10000.0); // as far as is known
    measure(p, 1, 20000, 1.0, 5);
    CHECK(near(p.passes().slowdown(), 2.0, 1e-9));
    CHECK(p.passes().measured_beside(1) && !p.passes().measured_beside(4) && !p.passes().measured(4));
    // Measured in one way only: scaled.
    measure(p, 4, 15000, 0.0, 5);
    CHECK(near(p.pass_us(4, true, false), 30000.0, 1e-9));
    CHECK(p.pass_us(4, true) < 30000.0); // small enough to be tried
    measure(p, 6, 50000, 1.0, 5);
    CHECK(near(p.pass_us(6, false), 25000.0, 1e-9));
    CHECK(p.passes().measured(4) && p.passes().measured(6));
    // A tenth of a pass beside the draft is as good as alone.
    measure(p, 1, 20000, 0.1, 60);
    CHECK(near(p.passes().slowdown(), 1.4, 0.4));
    // It never looks as if company made it faster.
    pair_profile q;
    measure(q, 2, 20000, 0.0, 5);
    measure(q, 2, 10000, 0.9, 5);
    CHECK_EQ(q.passes().slowdown(), 1.0);
}

TEST(slowdown_goes_when_contention_goes) {
    // Widths that are no longer measured say nothing of today.
    pair_profile p;
    for (int32_t n = 1; n <= 12; ++n) {
        measure(p, n, 10000, 0.0, 8);
        measure(p, n, 20000, 1.0, 8);
    }
    for (int i = 0; i < 2000; ++i) {
        measure(p, 5 + i % 2, 10000, i % 10 == 0 ? 0.0 : 1.0, 1);
    }
    CHECK(p.passes().slowdown() < 1.1, std::to_string(p.passes().slowdown()));
}

TEST(steps_and_their_price) {
    pair_profile p;
    CHECK_EQ(p.step_us(1, true), 0.0);
    CHECK(p.branch_price() > 0.0);
    for (int i = 0; i < 20; ++i) {
        p.on_step(1, 1000.0f, true);
    }
    CHECK(near(p.step_us(1, true), 1000.0, 1e-6));
    CHECK(!p.measured_step(5, true));
    for (int i = 0; i < 200; ++i) {
        for (const int32_t n : {5, 9}) {
            p.on_step(n, 1000.0f + 200.0f * float(n - 1), true);
        }
    }
    CHECK(p.measured_step(5, true));
    CHECK(near(p.branch_price(), 0.2, 0.02), std::to_string(p.branch_price()));
    CHECK(near(p.step_us(5, true), 1800.0, 0.01) && near(p.step_us(3, true), 1400.0, 0.02));
    p.on_step(0, 1.0f, true);
    p.on_step(1, 0.0f, true); // not a typical one
    p.on_step(-3, 5.0f, true);
    CHECK(near(p.step_us(1, true), 1000.0, 1e-6));
    p.on_step(40, 5000.0f, true); // counts as the widest
    CHECK(p.measured_step(n_step_cap, true));
    // Only wide steps are known: one over a single node is less.
    pair_profile q;
    q.on_step(8, 1350.0f, true);
    CHECK(near(q.step_us(1, true), 1000.0, 0.01));
}

TEST(saved_and_restored) {
    dice         d(3);
    pair_profile p;
    for (int i = 0; i < 3000; ++i) {
        p.on_pass(d.between(1, n_rows_cap), d.between(1000, 90000), 0.01 * d.between(0, 100));
        p.on_step(d.between(1, 16), float(d.between(100, 900)), true);
        guess_record & r = p.guesses(guess_kind(d.below(n_guess_kinds)));
        r.on_guess(d.between(0, 63), d.chance(0.6), d.chance(0.5));
        r.on_ngram(d.between(1, 20), d.between(0, 63), d.chance(0.4));
        const float   said[] = {-0.01f * float(d.below(100)), -1.5f, -3.0f};
        const int32_t right  = d.between(-1, 2);
        for (int32_t k = 0; k < 3; ++k) {
            r.on_child(said[k], k == right);
        }
        r.on_choice(said, right);
    }
    const std::vector<double> numbers = p.saved();
    pair_profile              q;
    q.restore(numbers);
    CHECK_EQ(q.saved(), numbers);
    for (int32_t n = 1; n <= n_rows_cap; ++n) {
        CHECK(near(q.pass_us(n, true), p.pass_us(n, true), 1e-9) &&
              near(q.pass_us(n, false), p.pass_us(n, false), 1e-9));
    }
    for (size_t kind = 0; kind < n_guess_kinds; ++kind) {
        const guess_record & x = std::as_const(p).guesses(guess_kind(kind));
        const guess_record & y = std::as_const(q).guesses(guess_kind(kind));
        for (int32_t n = 1; n <= n_rows_cap; ++n) {
            CHECK(near(y.chance(-0.08f * float(n)), x.chance(-0.08f * float(n)), 1e-9));
            CHECK(near(y.acceptance(n), x.acceptance(n), 1e-9) &&
                  near(y.ngram_chance(n, n), x.ngram_chance(n, n), 1e-9));
        }
        CHECK(near(y.acceptance_fresh(), x.acceptance_fresh(), 1e-9));
        CHECK(x.sharp().order() != 0 && y.sharp().order() == x.sharp().order());
        CHECK(near(y.sharp().weight(), x.sharp().weight(), 1e-9));
    }
    CHECK(near(q.step_us(3, true), p.step_us(3, true), 1e-9));
    CHECK_EQ(q.passes().n_tried(), p.passes().n_tried());

    // What is not its own, or no number, changes nothing.
    const auto refused = [&](std::vector<double> bad) {
        pair_profile r;
        r.restore(numbers);
        r.restore(bad);
        CHECK_EQ(r.saved(), numbers);
        pair_profile empty;
        empty.restore(bad);
        CHECK_EQ(empty.saved(), pair_profile().saved());
    };
    refused({});
    auto shorter = numbers;
    shorter.pop_back();
    refused(shorter);
    auto longer = numbers;
    longer.push_back(0.0);
    refused(longer);
    for (const double x : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), -1.0}) {
        for (const size_t i : {size_t(0), numbers.size() / 2, numbers.size() - 1}) {
            auto bad = numbers;
            bad[i]   = x;
            refused(bad);
        }
    }
    // Numbers from a file may be anything else: they must not break arithmetic.
    auto odd = numbers;
    for (double & x : odd) {
        x = d.chance(0.5) ? 1e300 : 0.0;
    }
    q.restore(odd);
    CHECK(q.passes().n_tried() >= 0 && q.guesses(guess_kind::noise).chance(-0.5f) > 0.0 &&
          q.guesses(guess_kind::noise).chance(-0.5f) < 1.0);
    CHECK(q.pass_us(5, true) >= 0.0 && q.passes().slowdown() >= 1.0);
}

TEST(ngrams_are_counted_by_their_length) {
    guess_record r;
    CHECK(r.ngram_chance(12, 0) > r.ngram_chance(6, 0) && r.ngram_chance(6, 0) > r.ngram_chance(2, 0));
    for (int i = 0; i < 50; ++i) {
        r.on_ngram(14, 0, true);
        r.on_ngram(2, 0, i % 5 == 0);
    }
    CHECK(r.ngram_chance(12, 0) > 0.95 && r.ngram_chance(40, 0) == r.ngram_chance(12, 0));
    CHECK(r.ngram_chance(2, 0) < 0.35 && r.ngram_chance(1, 0) == r.ngram_chance(2, 0));
    CHECK_EQ(r.ngram_chance(4, 0), r.ngram_chance(5, 0));
    CHECK(r.ngram_chance(3, 0) > 0.5, "another length");
    CHECK_EQ(r.ngram_chance(14, 70), r.ngram_chance(14, 11)); // deep tokens count together
}
