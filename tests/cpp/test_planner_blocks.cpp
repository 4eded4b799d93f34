// Drafts whose step gives several levels at once. Simulated time, no model.
#include "planner_world.h"

using namespace duo_test;

namespace {

constexpr int32_t n_levels = 8;

text_planner planner_of(const facts & f, const plan_params & p) {
    return {{.n_levels = f.n_levels}, p, n_branches};
}

double best_of_turns(const facts & f) {
    double best = 0.0;
    for (const int32_t n : {1, 2, 3, 4, 6, 8}) {
        text_planner pl = planner_of(f, params(run_mode::sync, n));
        best            = std::max(best, world(f).run(pl, 3000).speed());
    }
    return best;
}

} // namespace

TEST(a_block_is_priced_as_one_step) {
    for (const double c : check::cases({0.2, 0.5, 1.0})) {
        for (const double a : check::cases({0.6, 0.8, 0.9})) {
            const facts  f{.v = sloped, .step_us = c * 10000.0, .a = a, .n_levels = n_levels};
            text_planner pl = planner_of(f, params(run_mode::async));
            world        w(f);
            w.run(pl, 2000);
            const auto   r    = w.run(pl, 4000);
            const double best = std::max(best_of_turns(f), 1.0 / sloped(1));
            const auto   note = "c " + std::to_string(c) + " a " + std::to_string(a) + ": " +
                              std::to_string(r.speed() / best) + " of the best turns";
            CHECK(r.share(stance::ahead) == 0.0, note);
            CHECK(r.speed() > 0.93 * best, note);
        }
    }
}

// Steps over one level each would not pay here.
TEST(a_block_pays_where_a_chain_does_not) {
    facts        f{.v = sloped, .step_us = 8000.0, .a = 0.8, .n_levels = n_levels};
    text_planner blocks = planner_of(f, params(run_mode::async));
    const auto   r      = world(f).run(blocks, 4000);
    CHECK(r.speed() > 1.2 / sloped(1), std::to_string(r.speed() * sloped(1)));
    CHECK(r.share(stance::by_turn) > 0.9);
    f.n_levels         = 1;
    text_planner chain = planner_of(f, params(run_mode::sync));
    const auto   one   = world(f).run(chain, 4000);
    CHECK(one.speed() < 0.9 * r.speed(), std::to_string(one.speed() / r.speed()));
}

TEST(a_block_that_is_too_dear_rests) {
    const facts  f{.v = sloped, .step_us = 60000.0, .a = 0.6, .n_levels = n_levels};
    text_planner pl = planner_of(f, params(run_mode::async));
    world        w(f);
    w.run(pl, 2000);
    const auto r = w.run(pl, 4000);
    CHECK(r.share(stance::rest) > 0.8, std::to_string(r.share(stance::rest)));
    CHECK(r.speed() > 0.9 / sloped(1), std::to_string(r.speed() * sloped(1)));
}

// The runner-up at each level is free for the draft, so a tree is verified where that is worth its rows.
TEST(a_block_branches) {
    const facts  f{.v = flat, .step_us = 3000.0, .a = 0.5, .second = 0.8, .n_levels = n_levels};
    text_planner pl = planner_of(f, params(run_mode::async));
    world        w(f);
    w.run(pl, 2000);
    const auto  r      = w.run(pl, 4000);
    plan_params p      = params(run_mode::async);
    p.use              = tree_use::chain;
    text_planner chain = planner_of(f, p);
    world        other(f);
    other.run(chain, 2000);
    const double of_chain = other.run(chain, 4000).speed();
    CHECK(r.n_trees > 2000, std::to_string(r.n_trees));
    CHECK(r.speed() > 1.1 * of_chain, std::to_string(r.speed() / of_chain));
}

TEST(texts_in_company_take_turns_with_blocks) {
    pair_profile p;
    for (const double beside : {0.0, 1.0}) {
        for (int32_t n = 1; n <= 48; ++n) {
            p.on_pass(n, 20000 + 200 * (n - 1), beside);
            p.on_pass(n, 20000 + 200 * (n - 1), beside);
        }
        for (int32_t n = 1; n <= n_step_cap; ++n) {
            p.on_step(n, 16000.0f, beside);
            p.on_step(n, 16000.0f, beside);
        }
    }
    for (int i = 0; i < 500; ++i) {
        for (int32_t level = 0; level < 16; ++level) {
            p.guesses(guess_kind::noise).on_guess(level, i % 10 < 8, false);
        }
    }
    stance_rates blocks(p);
    stance_rates steps(p);
    blocks.begin({.n_texts = 4, .n_max = 16, .n_levels = n_levels});
    steps.begin({.n_texts = 4, .n_max = 16});
    CHECK(blocks.now().turns.k >= 4);
    CHECK(blocks.now().turns.rate > 1.2 * steps.now().turns.rate);
    planner plans;
    plans.expect({.n_levels = n_levels});
    plans.begin({}, {.n_texts = 4});
    CHECK(plans.stance_now() == stance::by_turn);
}
