// When is a tree verified, and when a chain? Simulated time, no model.
#include "planner_world.h"

using namespace duo_test;

namespace {

world::result run(const facts & f, plan_params p, int n_passes = 2000) {
    text_planner pl;
    pl.begin(p, n_branches);
    world w(f);
    w.run(pl, 300);
    return w.run(pl, n_passes);
}

} // namespace

TEST(plan_tree_where_width_is_free) {
    const facts f{.v = flat, .step_us = 300.0, .a = 0.6, .second = 0.8};
    const auto  tree = run(f, params(run_mode::async));
    CHECK(tree.n_trees > 0.9 * tree.n_passes, std::to_string(tree.n_trees));
    auto p           = params(run_mode::async);
    p.use            = tree_use::chain;
    const auto chain = run(f, p);
    CHECK_EQ(chain.n_trees, 0);
    CHECK(tree.speed() > 1.2 * chain.speed(), std::to_string(tree.speed() / chain.speed()));
}

TEST(plan_chain_where_width_is_dear) {
    // A row more costs a third of a pass: runner-ups with a chance of a fifth are not worth one.
    const auto dear = [](int n) { return 10000.0 * (1.0 + 0.33 * (n - 1)); };
    for (const double second : {0.3, 0.6}) {
        const auto r = run({.v = dear, .step_us = 100.0, .a = 0.7, .second = second}, params(run_mode::async));
        CHECK(r.n_drafted > 1000, std::to_string(r.n_drafted));
        CHECK(r.n_trees < 0.02 * r.n_passes, std::to_string(r.n_trees));
    }
    // Nor are runner-ups that never come where width is free: at most they are tried.
    const auto r = run({.v = flat, .step_us = 300.0, .a = 0.6}, params(run_mode::async));
    CHECK_EQ(r.n_trees, 0);
}

TEST(plan_tree_is_no_slower_than_a_chain) {
    for (const auto & v : {flat, sloped, stock}) {
        for (const double second : check::cases({0.3, 0.9}, {0.1, 0.3, 0.6, 0.9})) {
            for (const double step_us : check::cases({200.0, 2000.0})) {
                const facts f{.v = v, .step_us = step_us, .a = 0.7, .second = second};
                auto        p    = params(run_mode::async);
                p.use            = tree_use::chain;
                p.n_branch       = 1;
                const auto best  = run(f, p, 5000);
                const auto tree  = run(f, params(run_mode::async), 5000);
                const auto ratio = tree.speed() / best.speed();
                CHECK(ratio > 0.95, "v(9) " + std::to_string(v(9)) + " second " + std::to_string(second) + " step " +
                                        std::to_string(step_us) + ": " + std::to_string(ratio));
            }
        }
    }
}

TEST(a_requested_plan_is_not_changed) {
    // A useless draft with dear steps and dear rows: what was asked for is done all the same, in every pass but those
    // for which nothing can be there.
    for (const run_mode mode : {run_mode::sync, run_mode::async}) {
        auto always   = params(mode, 4);
        always.always = true;
        auto dynamic  = params(mode, 6);
        dynamic.use   = tree_use::dynamic;
        auto shape    = params(mode);
        shape.tree    = {{0, 0}, {1}, {0, 1}};
        for (const auto & p : {always, dynamic, shape}) {
            text_planner pl;
            pl.begin(p, n_branches);
            world      w({.v = stock, .step_us = 2000.0, .a = 0.1, .second = 0.2});
            const auto r    = w.run(pl, 1000);
            const auto note = "mode " + std::to_string(int(mode)) + " use " + std::to_string(int(p.use)) + " shape " +
                              std::to_string(p.tree.size());
            CHECK_EQ(r.n_in[size_t(mode == run_mode::sync ? stance::by_turn : stance::ahead)], 1000, note);
            CHECK_EQ(r.n_alone, 0, note + ": no yardstick");
            CHECK_EQ(r.n_drafted, 1000, note);
            CHECK(r.n_most <= (p.tree.empty() ? p.n_max : 4), note);
            if (mode == run_mode::sync || p.use == tree_use::dynamic) {
                CHECK_EQ(r.n_most, p.tree.empty() ? p.n_max : 4, note);
            }
            if (!p.tree.empty() && mode == run_mode::sync) {
                CHECK_EQ(r.n_least, 4, note + ": the whole shape");
            }
            if (p.use == tree_use::dynamic) {
                CHECK(r.n_trees > 900, note + ": " + std::to_string(r.n_trees));
            }
        }
    }
}

TEST(plan_orders_for_the_draft) {
    text_planner pl;
    auto         p = params(run_mode::async);
    pl.begin(p, n_branches);
    CHECK(pl.n_ahead() > 16 && pl.orders().n_branch > 1 && pl.orders().n_want == 0);
    p.n_branch = 3;
    pl.begin(p, n_branches);
    CHECK_EQ(pl.orders().n_branch, 3);
    p     = params(run_mode::sync, 7);
    p.use = tree_use::dynamic;
    pl.begin(p, n_branches);
    CHECK_EQ(pl.orders().n_want, 7);
    CHECK(pl.orders().n_branch > 1);
    p.tree = {{0, 0, 0}, {1}};
    pl.begin(p, n_branches);
    CHECK_EQ(pl.n_ahead(), 3);
    CHECK_EQ(pl.orders().n_want, 0);
    p.mode = run_mode::async;
    pl.begin(p, n_branches);
    CHECK(pl.n_ahead() > 3);
}
