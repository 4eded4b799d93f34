// What the planner may never do, whatever it has measured.
#include "planner_world.h"

using namespace duo_test;

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

TEST(plan_explicit_n_is_a_cap) {
    for (const int32_t n : {1, 3, 8}) {
        for (const double a : {0.0, 0.5, 1.0}) {
            planner dear;
            dear.begin(params(run_mode::async, n));
            world      w{.v = stock, .step_us = 20000.0, .a = a};
            const auto r = w.run(dear, 1000);
            CHECK(r.n_most <= n);
            CHECK(r.n_drafted <= 50); // widths that do not pay are looked at, not used
            CHECK(r.n_waits <= 50);
            for (const int32_t n_ready : {0, 1, n, 3 * n}) {
                for (const bool growing : {false, true}) {
                    CHECK(dear.next(n_ready, 1000, growing).n_verify <= n);
                }
            }
        }
        planner cheap;
        cheap.begin(params(run_mode::async, n));
        world      w{.v = [](int) { return 10000.0; }, .step_us = 10.0, .a = 1.0};
        const auto r = w.run(cheap, 1000);
        CHECK(r.n_most == n);
        CHECK(r.n_drafted > 900);
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
