// Does auto choose what pays? Simulated time, no model.
#include "planner_world.h"

using namespace duo_test;

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
