// Does auto choose what pays? Simulated time, no model. Contention and rest: test_planner_stance.cpp.
#include "planner_world.h"

using namespace duo_test;

TEST(plan_wide_when_wide_is_free) {
    for (const auto & v : {flat, +[](int n) { return 10000.0 * (1.0 + 0.01 * n); }}) {
        text_planner pl;
        pl.begin(params(run_mode::async), n_branches);
        world w({.v = v, .step_us = 100.0, .a = 0.9});
        w.run(pl, 50);
        const auto r = w.run(pl, 500);
        CHECK(r.width >= 8.0, std::to_string(r.width));
        CHECK(r.n_most <= 16);
    }
}

TEST(plan_nothing_on_a_stock_cpu) {
    for (const double a : {0.3, 0.5, 0.65}) {
        text_planner pl;
        pl.begin(params(run_mode::async), n_branches);
        world w({.v = stock, .step_us = 500.0, .a = a});
        w.run(pl, 100);
        const auto r = w.run(pl, 3000);
        CHECK(r.n_drafted < 0.02 * r.n_passes, std::to_string(r.n_drafted) + " at " + std::to_string(a));
    }
}

TEST(plan_nothing_for_a_useless_draft) {
    for (const double claim : {-1.0, 0.5, 0.9}) { // it may know, or not
        for (const double step_us : {200.0, 3000.0, 30000.0}) {
            for (const run_mode mode : {run_mode::async, run_mode::sync}) {
                text_planner pl;
                pl.begin(params(mode), n_branches);
                world      w({.v = sloped, .step_us = step_us, .a = 0.0, .claim = claim});
                const auto first = w.run(pl, 64);
                const auto note  = "mode " + std::to_string(int(mode)) + ", step " + std::to_string(step_us) +
                                  ", claims " + std::to_string(claim) +
                                  ", passes with a draft: " + std::to_string(first.n_drafted);
                CHECK(pl.stance_now() == stance::rest, "at rest within 64 tokens: " + note);
                CHECK(first.n_drafted < 40, note);
                const auto   then  = w.run(pl, 10000);
                const double plain = 1.0 / sloped(1);
                CHECK(then.n_drafted < 300, note + ", then " + std::to_string(then.n_drafted));
                CHECK(then.speed() > 0.97 * plain, note + ", speed " + std::to_string(then.speed() / plain));
                CHECK(then.share(stance::rest) > 0.9, note + ", rests " + std::to_string(then.share(stance::rest)));
            }
        }
    }
}

TEST(plan_recovers_when_the_draft_does) {
    for (const run_mode mode : {run_mode::async, run_mode::sync}) {
        text_planner pl;
        pl.begin(params(mode), n_branches);
        world w({.v = sloped, .step_us = 200.0, .a = 0.0, .claim = 0.9});
        w.run(pl, 300);
        CHECK(pl.stance_now() == stance::rest || w.run(pl, 100).share(stance::rest) > 0.5);
        w.a = 0.9;
        w.run(pl, 600);
        const auto r = w.run(pl, 300);
        CHECK(r.width > 3.0, std::to_string(r.width));
    }
}

TEST(plan_tries_again_with_the_next_text) {
    text_planner pl;
    pl.begin(params(run_mode::async), n_branches);
    world w({.v = sloped, .step_us = 200.0, .a = 0.0, .claim = 0.9});
    w.run(pl, 3000); // the last rest is a long one
    REQUIRE(pl.stance_now() == stance::rest);
    CHECK_EQ(pl.n_ahead(), 0);
    pl.begin(params(run_mode::async), n_branches);
    w.a = 0.9;
    w.run(pl, 100);
    CHECK(w.run(pl, 100).width > 2.0);
}

TEST(plan_recovers_from_wrong_measurements) {
    // The first passes ran beside something else: three times too slow. A useless draft is given up all the same.
    text_planner pl;
    pl.begin(params(run_mode::async), n_branches);
    for (int i = 0; i < 3; ++i) {
        pl.profile().on_pass(1, 30000, 0.0);
    }
    world w({.v = sloped, .step_us = 200.0, .a = 0.05, .claim = 0.5});
    w.run(pl, 300);
    const auto r = w.run(pl, 300);
    CHECK(r.n_drafted < 30, std::to_string(r.n_drafted));

    // And a good one is not given up for wide passes that were slow once.
    for (const double shared : {0.0, 1.0}) {
        text_planner good;
        good.begin(params(run_mode::async), n_branches);
        for (int n = 1; n <= 9; ++n) {
            for (int i = 0; i < 3; ++i) {
                good.profile().on_pass(n, n == 1 ? 10000 : 60000, shared);
            }
        }
        world x({.v = sloped, .step_us = 200.0, .a = 0.9});
        x.run(good, 300);
        const auto s = x.run(good, 300);
        CHECK(s.width > 2.0, std::to_string(s.width) + ", shared " + std::to_string(shared));
    }
}

TEST(plan_auto_with_a_least_width) {
    for (const int32_t n_min : {2, 4, 9}) {
        for (const run_mode mode : {run_mode::async, run_mode::sync}) {
            text_planner pl;
            pl.begin(params(mode, n_draft_auto, n_min), n_branches);
            world w({.v = sloped, .step_us = 200.0, .a = 0.9});
            w.run(pl, 50);
            const auto r = w.run(pl, 300);
            CHECK(r.width > 0.8 * n_min, std::to_string(n_min) + ": " + std::to_string(r.width));
        }
    }
}

TEST(plan_waits_only_for_a_cheap_draft) {
    // After a rejection nothing is ready: a step of 1% of a pass is worth waiting for, one of 90% is not.
    text_planner cheap;
    cheap.begin(params(run_mode::async), n_branches);
    world w({.v = sloped, .step_us = 100.0, .a = 0.7});
    w.run(cheap, 200);
    const auto p = w.ask(cheap, 0, 1000, true);
    CHECK(p.wait_us >= 100);
    CHECK(p.wait_us <= 10000, "a draft that hangs does not hold up the text");
    CHECK_EQ(w.ask(cheap, 0, 1000, false).wait_us, 0);
    CHECK_EQ(w.ask(cheap, 16, 1000, true).wait_us, 0);
    CHECK(w.ask(cheap, 4, 1000, false).n_verify > 1);

    text_planner dear;
    dear.begin(params(run_mode::async), n_branches);
    world x({.v = sloped, .step_us = 9000.0, .a = 0.5});
    x.run(dear, 200);
    CHECK_EQ(x.ask(dear, 0, 1000, true).wait_us, 0);
    CHECK_EQ(x.ask(dear, 2, 1000, true).wait_us, 0);
    CHECK(x.ask(dear, 2, 1000, true).n_verify > 0, "what is there is used");
}

TEST(plan_is_near_the_best_static_width) {
    for (const double c : check::cases({0.02, 0.4}, {0.02, 0.1, 0.4})) {
        for (const double a : check::cases({0.5, 0.9}, {0.5, 0.7, 0.9})) {
            double best = 0.0;
            for (int32_t n = 1; n <= 16; ++n) {
                text_planner pl;
                pl.begin(params(run_mode::sync, n), n_branches);
                world w({.v = sloped, .step_us = c * 10000.0, .a = a});
                best = std::max(best, w.run(pl, 3000).speed());
            }
            for (const run_mode mode : {run_mode::sync, run_mode::async}) {
                text_planner pl;
                pl.begin(params(mode), n_branches);
                world w({.v = sloped, .step_us = c * 10000.0, .a = a});
                w.run(pl, 100);
                const double speed = w.run(pl, 3000).speed();
                CHECK(speed > 0.91 * best,
                      "c " + std::to_string(c) + " a " + std::to_string(a) + ": " + std::to_string(speed / best));
                // What is drafted while the target works comes for nothing where a step is dear.
                CHECK(mode == run_mode::sync || c < 0.4 || speed > 1.05 * best, std::to_string(speed / best));
            }
        }
    }
}

// By turn the draft stops by itself, by its own estimates. A greedy target takes its best guess more often than they
// say.
TEST(plan_by_turn_trusts_a_modest_draft) {
    const auto width = [](double a, double claim) {
        text_planner pl;
        pl.begin(params(run_mode::sync), n_branches);
        world w({.v = flat, .step_us = 100.0, .a = a, .claim = claim});
        w.run(pl, 500);
        return w.run(pl, 500).width;
    };
    CHECK(width(0.9, 0.3) > 0.8 * width(0.9, 0.9));
    CHECK(width(0.3, 0.9) < 1.2 * width(0.3, 0.3));
}

TEST(plan_expects_the_measured_tokens_per_pass) {
    // The tokens that the planner expects of its passes are those that come, whatever the draft says of itself.
    for (const double claim : {-1.0, 0.5, 0.95}) {
        text_planner pl;
        pl.begin(params(run_mode::async), n_branches);
        world w({.v = flat, .step_us = 200.0, .a = 0.8, .claim = claim});
        w.run(pl, 200);
        const auto r = w.run(pl, 3000);
        CHECK(r.expected > 0.93 * r.n_tokens && r.expected < 1.07 * r.n_tokens,
              "claims " + std::to_string(claim) + ": " + std::to_string(r.expected / r.n_tokens));
    }
}
