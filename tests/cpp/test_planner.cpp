// The planner in made-up worlds: what passes and draft steps cost and how often the draft is right is given.
#include <algorithm>
#include <functional>

#include "check.h"
#include "core/planner.h"
#include "random.h"

using namespace duo;
using namespace duo_test;

namespace {

// Time is simulated: the draft grows its chain while the target works or waits, as the two workers do.
struct world {
    std::function<double(int)> v; // pass over n rows, microseconds
    double                     step_us = 100.0;
    double                     a       = 0.7; // acceptance at every position
    int32_t                    n_room  = 1000;
    int32_t                    n_min   = 0; // as in the plan's parameters: a shorter chain is not verified
    uint64_t                   seed    = 1;

    struct result {
        int     n_passes  = 0;
        int     n_drafted = 0; // passes with drafted tokens
        int     n_tokens  = 0;
        int     n_waits   = 0;
        double  width     = 0.0; // mean of drafted tokens per pass
        double  us        = 0.0;
        int32_t n_most    = 0; // widest plan
        int32_t n_least   = 1000;
        double  speed() const { return n_tokens / us; }
    };

    result run(planner & pl, int n_passes) {
        dice    d(seed++);
        result  r;
        double  ahead   = 0.0; // draft's nodes ready, a fraction of a step as well
        int32_t n_ahead = pl.look_ahead();
        for (int i = 0; i < n_passes; ++i) {
            const auto grow = [&](double us) {
                ahead = std::max(ahead, std::min(double(n_ahead), ahead + us / step_us));
            };
            const bool growing = int32_t(ahead) < n_ahead;
            const plan p       = pl.next(int32_t(ahead), n_room, growing);
            r.n_most           = std::max(r.n_most, p.n_verify);
            r.n_least          = std::min(r.n_least, p.n_verify);
            double us          = 0.0;
            if (p.wait_us > 0 && ahead < p.n_verify && growing) {
                us = std::min(double(p.wait_us), (std::min(p.n_verify, n_ahead) - ahead) * step_us + 0.01);
                grow(us);
                ++r.n_waits;
            }
            int32_t m = std::min(p.n_verify, int32_t(ahead));
            m         = m < n_min ? 0 : m;
            us += v(m + 1);
            grow(v(m + 1));
            pl.on_pass(m + 1, int64_t(v(m + 1)));
            pl.on_step(float(step_us));
            int32_t j = 0;
            for (; j < m; ++j) {
                const bool right = d.chance(a);
                pl.on_accept(j, right);
                if (!right) {
                    break;
                }
            }
            // Behind the accepted nodes the next one, if it is there, may be the target's choice too.
            const bool known = j == m && int32_t(ahead) > m;
            const bool hit   = known && d.chance(a);
            if (known) {
                pl.on_accept(j, hit);
            } else if (j == m) {
                pl.on_late_guess(d.chance(a));
            }
            ahead   = hit ? ahead - j - 1 : 0.0;
            n_ahead = pl.look_ahead();
            ++r.n_passes;
            r.n_drafted += m > 0 ? 1 : 0;
            r.n_tokens += j + 1;
            r.width += m;
            r.us += us;
        }
        r.width /= n_passes;
        return r;
    }
};

plan_params params(run_mode mode, int32_t n_max = n_draft_auto, int32_t n_min = 0) {
    return {.mode = mode, .n_max = n_max, .n_min = n_min};
}

double flat(int /*n*/) {
    return 10000.0;
}

double sloped(int n) {
    return 10000.0 * (1.0 + 0.1 * (n - 1));
}

// A stock CPU: v(2) = 3, v(4) = 4, v(8) = 5.
double stock(int n) {
    return 10000.0 * (n == 1 ? 1.0 : n <= 4 ? 3.0 + 0.5 * (n - 2) : 4.0 + 0.25 * (n - 4));
}

} // namespace

TEST(plan_wide_when_wide_is_free) {
    for (const auto & v : {flat, +[](int n) { return 10000.0 * (1.0 + 0.01 * n); }}) {
        planner pl;
        pl.begin(params(run_mode::async));
        world w{.v = v, .step_us = 100.0, .a = 0.9};
        w.run(pl, 50);
        const auto r = w.run(pl, 500);
        CHECK(r.width >= 8.0, std::to_string(r.width));
        CHECK(r.n_most <= 16);
    }
}

TEST(plan_nothing_on_a_stock_cpu) {
    for (const double a : {0.3, 0.5, 0.65}) {
        planner pl;
        pl.begin(params(run_mode::async));
        world w{.v = stock, .step_us = 500.0, .a = a};
        w.run(pl, 100);
        const auto r = w.run(pl, 3000);
        CHECK(r.n_drafted < 0.02 * r.n_passes, std::to_string(r.n_drafted) + " at " + std::to_string(a));
    }
}

TEST(plan_nothing_for_a_useless_draft) {
    for (const double step_us : {200.0, 3000.0, 30000.0}) {
        for (const run_mode mode : {run_mode::async, run_mode::sync}) {
            planner pl;
            pl.begin(params(mode));
            world      w{.v = sloped, .step_us = step_us, .a = 0.0};
            const auto first = w.run(pl, 64);
            const auto then  = w.run(pl, 10000);
            const auto note  = "step " + std::to_string(step_us) +
                               ", passes with a draft: " + std::to_string(first.n_drafted) + " of 64, then " +
                               std::to_string(then.n_drafted);
            CHECK(first.n_drafted < 40, note);
            CHECK(then.n_drafted < 300, note);
            const double plain = 10000.0 / (10000.0 * sloped(1));
            CHECK(then.speed() > 0.97 * plain, note + ", speed " + std::to_string(then.speed() / plain));
        }
    }
}

TEST(plan_recovers_when_the_draft_does) {
    planner pl;
    pl.begin(params(run_mode::async));
    world w{.v = sloped, .step_us = 200.0, .a = 0.0};
    w.run(pl, 300);
    w.a = 0.9;
    w.run(pl, 300);
    const auto r = w.run(pl, 300);
    CHECK(r.width > 3.0, std::to_string(r.width));
}

TEST(plan_recovers_from_wrong_measurements) {
    // The first passes ran beside something else: three times too slow. A useless draft is given up all the same.
    planner pl;
    pl.begin(params(run_mode::async));
    for (int i = 0; i < 3; ++i) {
        pl.on_pass(1, 30000);
    }
    world w{.v = sloped, .step_us = 200.0, .a = 0.05};
    w.run(pl, 300);
    const auto r = w.run(pl, 300);
    CHECK(r.n_drafted < 30, std::to_string(r.n_drafted));

    // And a good one is not given up for wide passes that were slow once.
    planner good;
    good.begin(params(run_mode::async));
    for (int n = 1; n <= 9; ++n) {
        for (int i = 0; i < 3; ++i) {
            good.on_pass(n, n == 1 ? 10000 : 60000);
        }
    }
    w.a = 0.9;
    w.run(good, 300);
    const auto s = w.run(good, 300);
    CHECK(s.width > 2.0, std::to_string(s.width));
}

TEST(plan_auto_with_a_least_width) {
    for (const int32_t n_min : {2, 4, 9}) {
        for (const run_mode mode : {run_mode::async, run_mode::sync}) {
            planner pl;
            pl.begin(params(mode, n_draft_auto, n_min));
            world w{.v = sloped, .step_us = 200.0, .a = 0.9, .n_min = n_min};
            w.run(pl, 50);
            const auto r = w.run(pl, 300);
            CHECK(r.width > 0.8 * n_min, std::to_string(n_min) + ": " + std::to_string(r.width));
        }
    }
}

TEST(plan_waits_only_for_a_cheap_draft) {
    // After a rejection nothing is ready: a step of 1% of a pass is worth waiting for, one of 90% is not.
    planner cheap;
    cheap.begin(params(run_mode::async));
    world w{.v = sloped, .step_us = 100.0, .a = 0.7};
    w.run(cheap, 200);
    const plan p = cheap.next(0, 1000, true);
    CHECK(p.n_verify > 1);
    CHECK(p.wait_us >= int64_t(p.n_verify * 100));

    planner dear;
    dear.begin(params(run_mode::async));
    w.step_us = 9000.0;
    w.a       = 0.5;
    w.run(dear, 200);
    CHECK_EQ(dear.next(0, 1000, true).wait_us, 0);
    CHECK_EQ(dear.next(2, 1000, true).wait_us, 0);
    CHECK(dear.next(2, 1000, true).n_verify > 0, "what is there is used");
}

TEST(plan_is_near_the_best_static_width) {
    for (const double c : {0.02, 0.1, 0.4}) {
        for (const double a : {0.5, 0.7, 0.9}) {
            double best = 0.0;
            for (int32_t n = 1; n <= 16; ++n) {
                planner pl;
                pl.begin(params(run_mode::sync, n));
                world w{.v = sloped, .step_us = c * 10000.0, .a = a};
                w.run(pl, 100);
                best = std::max(best, w.run(pl, 3000).speed());
            }
            planner pl;
            pl.begin(params(run_mode::sync));
            world w{.v = sloped, .step_us = c * 10000.0, .a = a};
            w.run(pl, 100);
            const double speed = w.run(pl, 3000).speed();
            CHECK(speed > 0.93 * best,
                  "c " + std::to_string(c) + " a " + std::to_string(a) + ": " + std::to_string(speed / best));
        }
    }
}

TEST(plan_sync_fixed_is_always_n) {
    for (const int32_t n : {1, 4, 16, 64}) {
        planner pl;
        pl.begin(params(run_mode::sync, n));
        CHECK_EQ(pl.look_ahead(), n);
        world      w{.v = stock, .step_us = 500.0, .a = 0.2};
        const auto r = w.run(pl, 500);
        CHECK_EQ(r.n_most, n);
        CHECK_EQ(r.n_least, n);
        CHECK_EQ(pl.look_ahead(), n);
        CHECK_EQ(pl.next(0, n + 5, true).n_verify, n);
        CHECK_EQ(pl.next(0, n - 1, true).n_verify, n - 1);
    }
}

TEST(plan_explicit_n_is_never_exceeded_nor_zero) {
    for (const int32_t n : {1, 3, 8}) {
        for (const double a : {0.0, 0.5, 1.0}) {
            planner pl;
            pl.begin(params(run_mode::async, n));
            world      w{.v = stock, .step_us = 20000.0, .a = a};
            const auto r = w.run(pl, 1000);
            CHECK(r.n_most <= n);
            CHECK(r.n_least >= 1);
            for (const int32_t n_ready : {0, 1, n, 3 * n}) {
                for (const bool growing : {false, true}) {
                    const plan p = pl.next(n_ready, 1000, growing);
                    CHECK(p.n_verify <= n);
                    CHECK(p.n_verify >= 1 || (n_ready == 0 && !growing));
                }
            }
        }
    }
}

TEST(plan_fits_the_room) {
    dice d(5);
    for (int k = 0; k < 20000; ++k) {
        planner     pl;
        plan_params pp = params(d.chance(0.5) ? run_mode::sync : run_mode::async);
        pp.n_max       = d.chance(0.3) ? n_draft_auto : d.between(0, 100);
        pp.n_min       = d.between(0, 5);
        pl.begin(pp);
        for (int i = 0; i < 8; ++i) {
            pl.on_pass(d.between(-1, 80), d.between(0, 5000));
            pl.on_step(float(d.between(0, 1000)));
            pl.on_accept(d.between(-1, 70), d.chance(0.5));
            const int32_t n_room = d.between(-5, 12);
            const plan    p      = pl.next(d.between(0, 20), n_room, d.chance(0.5));
            CHECK(p.n_verify >= 0 && p.n_verify <= std::max(0, n_room));
            CHECK(p.wait_us >= 0);
            CHECK(pl.look_ahead() >= 1);
            CHECK(pl.acceptance(i) > 0.0 && pl.acceptance(i) < 1.0);
        }
    }
}

TEST(plan_plain_is_nothing) {
    planner pl;
    pl.begin(params(run_mode::plain, 8));
    const plan p = pl.next(5, 100, true);
    CHECK_EQ(p.n_verify, 0);
    CHECK_EQ(p.wait_us, 0);
    pl.begin(params(run_mode::async, 0));
    CHECK_EQ(pl.next(5, 100, true).n_verify, 0);
}

TEST(plan_first_samples_do_not_mislead) {
    // The first pass of a shape may pay for its set-up: the smallest of the first three counts.
    planner pl;
    pl.begin(params(run_mode::async));
    pl.on_pass(1, 900000);
    pl.on_pass(1, 10000);
    pl.on_pass(1, 10500);
    CHECK(pl.pass_us(1) < 11000.0);
    for (int i = 0; i < 50; ++i) {
        pl.on_pass(1, 20000); // and it follows the machine afterwards
    }
    CHECK(pl.pass_us(1) > 19000.0);
    CHECK_EQ(int(pl.pass_us(5)), int(pl.pass_us(1)));
    pl.on_pass(9, 40000);
    CHECK(pl.pass_us(5) > 29000.0 && pl.pass_us(5) < 31000.0);
    CHECK(pl.pass_us(17) > 59000.0);
}
