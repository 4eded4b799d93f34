// What the planner may never do, whatever it has measured.
#include "planner_world.h"

using namespace duo_test;

TEST(plan_sync_fixed_is_always_n) {
    for (const int32_t n : {1, 4, 16, 64}) {
        text_planner pl;
        pl.begin(params(run_mode::sync, n), n_branches);
        CHECK_EQ(pl.n_ahead(), n);
        world      w({.v = stock, .step_us = 500.0, .a = 0.2});
        const auto r = w.run(pl, 500);
        CHECK_EQ(r.n_most, n);
        CHECK_EQ(r.n_least, n);
        CHECK_EQ(r.n_in[size_t(stance::by_turn)], 500);
        CHECK_EQ(pl.n_ahead(), n);
        CHECK_EQ(pl.orders().n_branch, 1);
        CHECK_EQ(w.ask(pl, n, n + 5, true).n_verify, n);
        CHECK_EQ(w.ask(pl, n + 3, n + 5, true).n_verify, n);
        CHECK_EQ(w.ask(pl, n, n - 1, true).n_verify, n - 1);
        CHECK(w.ask(pl, n - 1, n + 5, true).wait_us > 0, "it waits for the last one");
        CHECK_EQ(w.ask(pl, n - 1, n + 5, false).n_verify, n - 1);
    }
}

TEST(plan_explicit_n_is_a_cap) {
    for (const int32_t n : {1, 3, 8}) {
        for (const double a : {0.0, 0.5, 1.0}) {
            text_planner dear;
            dear.begin(params(run_mode::async, n), n_branches);
            world      w({.v = stock, .step_us = 20000.0, .a = a});
            const auto r    = w.run(dear, 1000);
            const auto note = "n " + std::to_string(n) + " a " + std::to_string(a) + ": " + std::to_string(r.n_drafted);
            CHECK(r.n_most <= n, note);
            CHECK(r.n_drafted <= 50, note); // widths that do not pay are looked at, not used
            CHECK(r.n_waits <= 50, note);
            for (const int32_t n_ready : {0, 1, n, 3 * n}) {
                for (const bool growing : {false, true}) {
                    CHECK(w.ask(dear, n_ready, 1000, growing).n_verify <= n);
                }
            }
        }
        text_planner cheap;
        cheap.begin(params(run_mode::async, n), n_branches);
        world      w({.v = flat, .step_us = 10.0, .a = 1.0});
        const auto r = w.run(cheap, 1000);
        CHECK(r.n_most == n);
        CHECK(r.n_drafted > 900);
    }
}

TEST(plan_fits_the_room) {
    dice d(5);
    for (int k = 0; k < check::n_cases(20000); ++k) {
        text_planner pl;
        plan_params  pp = params(d.chance(0.5) ? run_mode::sync : run_mode::async);
        pp.n_max        = d.chance(0.3) ? n_draft_auto : d.between(0, 100);
        pp.n_min        = d.between(0, 5);
        pp.use          = tree_use(d.between(0, 2));
        pp.always       = d.chance(0.2);
        pp.n_branch     = d.chance(0.5) ? d.between(1, 16) : 0;
        if (d.chance(0.2)) {
            pp.tree = {{0, 0}, {1}, {0, 2}};
        }
        const int32_t n_branch = d.between(1, 16);
        pl.begin(pp, n_branch);
        token_tree           drafted;
        pass_tree            tree;
        std::vector<int32_t> places;
        for (int i = 0; i < 8; ++i) {
            pl.profile().on_pass(d.between(-1, 80), d.between(0, 5000), 0.01 * d.between(0, 100));
            pl.profile().on_step(d.between(-1, 20), float(d.between(0, 1000)), d.chance(0.5));
            pl.profile().guesses(guess_kind::noise).on_guess(d.between(-1, 70), d.chance(0.5), d.chance(0.5));
            drafted.reset(1, 1);
            const int32_t n = d.between(0, 20);
            for (int32_t j = 0; j < n; ++j) {
                drafted.insert(node_id(j) + 2, d.chance(0.6) ? node_id(j) + 1 : d.below(uint32_t(j) + 1) + 1,
                               token_id(d.below(5)), -0.05f * float(d.below(60)));
            }
            pl.shape().match(drafted, places);
            pl.shape().empty() ? tree.begin(drafted, pl.profile().guesses(guess_kind::noise), pl.least_chance())
                               : tree.begin(drafted, pl.profile().guesses(guess_kind::noise), pl.shape(), places);
            const int32_t n_room = d.between(-5, 12);
            const auto    p      = pl.next(tree, {.n_room = n_room, .growing = d.chance(0.5), .fresh = d.chance(0.5)});
            CHECK(p.n_verify >= 0 && p.n_verify <= std::max(0, n_room));
            CHECK_EQ(p.n_verify, int32_t(tree.rows().size()));
            CHECK(p.n_verify == 0 || p.wait_us == 0, "either it waits, or it verifies");
            CHECK(p.n_verify == 0 || p.n_verify >= pp.n_min || tree.n_branches() == n_branch,
                  "n_min " + std::to_string(pp.n_min) + " n " + std::to_string(p.n_verify));
            CHECK(tree.n_branches() >= 1 && tree.n_branches() <= n_branch);
            CHECK(p.expected >= 1.0 && p.expected <= 1.0 + std::max(0, n_room));
            CHECK(p.wait_us >= 0);
            CHECK(pl.n_ahead() >= 0 && pl.orders().n_branch >= 1 && pl.orders().branch_price >= 1 &&
                  pl.orders().n_want >= 0);
            CHECK(pl.profile().guesses(guess_kind::noise).acceptance(i) > 0.0 &&
                  pl.profile().guesses(guess_kind::noise).acceptance(i) < 1.0);
            pl.on_pass(
                {.n_tokens = d.between(1, 1 + p.n_verify), .expected = p.expected, .us = double(d.between(1, 50000))});
        }
    }
}

TEST(plan_expects_of_what_is_verified) {
    // Where branches run out, what was left out of the pass is not expected of it.
    for (const int32_t n_branch : {2, 3, 16}) {
        text_planner pl;
        pl.begin(params(run_mode::async, 32), n_branch);
        world w({.v = flat, .step_us = 10.0, .a = 0.6, .second = 0.8});
        w.run(pl, 200);
        token_tree drafted;
        drafted.reset(1, 1);
        for (node_id up = 1, id = 2; up < 12; ++up) { // each node has two children
            drafted.insert(id++, up, 1, -0.5f);
            drafted.insert(id++, up, 2, -1.0f);
        }
        pass_tree tree;
        tree.begin(drafted, pl.profile().guesses(guess_kind::noise), pl.least_chance());
        const auto p   = pl.next(tree, {.n_room = 1000});
        double     sum = 1.0;
        for (int32_t i = 0; i < p.n_verify; ++i) {
            sum += tree.at_row(i).chance;
        }
        CHECK(std::abs(p.expected - sum) < 1e-9, std::to_string(n_branch) + " branches: expects " +
                                                     std::to_string(p.expected) + " of " + std::to_string(sum));
    }
}

TEST(plan_plain_is_nothing) {
    for (const auto & p : {params(run_mode::plain, 8), params(run_mode::async, 0), params(run_mode::sync, 0)}) {
        text_planner pl;
        pl.begin(p, n_branches);
        world w({.v = flat, .step_us = 100.0, .a = 0.9});
        for (const bool growing : {false, true}) {
            CHECK_EQ(w.ask(pl, 5, 100, growing).n_verify, 0);
            CHECK_EQ(w.ask(pl, 5, 100, growing).wait_us, 0);
        }
        CHECK_EQ(pl.n_ahead(), 0);
        CHECK_EQ(w.run(pl, 50).n_tokens, 50);
    }
}
