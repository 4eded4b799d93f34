// Which way to speculate the planner takes with several texts, by what it has measured.
#include "check.h"
#include "plan/pool_planner.h"

using namespace duo;

namespace {

// What was measured: a pass takes `pass` us over one row and `more` us for each further one, a step c passes; a is the
// draft's acceptance.
pair_profile measured(double pass, double more, double c, double a, int32_t n_rows_most = 48) {
    pair_profile p;
    for (const double beside : {0.0, 1.0}) {
        for (int32_t n = 1; n <= n_rows_most; ++n) {
            for (int i = 0; i < 3; ++i) {
                p.on_pass(n, int64_t(pass + more * (n - 1)), beside);
            }
        }
        for (int32_t n = 1; n <= n_step_cap; ++n) {
            for (int i = 0; i < 3; ++i) {
                p.on_step(n, float(c * pass), beside);
            }
        }
    }
    for (int i = 0; i < 1000; ++i) {
        for (int32_t level = 0; level < 16; ++level) {
            p.guesses(guess_kind::noise).on_guess(level, i * 37 % 100 < int(100 * a), false);
        }
    }
    return p;
}

// The texts have made so many passes in which their guesses were ready, or not.
void see_guesses(pool_planner & plans, const pair_profile & p, size_t n_texts, bool ready, int n) {
    token_tree tree;
    tree.reset(1, 5);
    if (ready) {
        tree.insert(2, 1, 6, -0.1f);
    }
    for (int i = 0; i < n; ++i) {
        (void)plans.orders(n_texts, p, {.n_most = 16});
        std::vector<pass_tree>  trees(n_texts);
        std::vector<pool_share> shares;
        for (pass_tree & t : trees) {
            t.begin(tree, p.guesses(guess_kind::noise), 0.0);
            shares.push_back({.tree = &t, .n_most = 8, .drafting = true});
        }
        (void)plans.next(shares, p, 32);
    }
}

} // namespace

TEST(ahead_where_rows_are_cheap) {
    const pair_profile p = measured(20000, 200, 0.3, 0.8);
    for (const size_t n : {size_t(2), size_t(4), size_t(8)}) {
        pool_planner plans;
        CHECK(plans.orders(n, p, {.n_most = 16}).n_ahead > 0);
        CHECK(plans.stance_now() == stance::ahead);
        CHECK(plans.rate_of(stance::ahead, n, p, 16) > plans.rate_of(stance::by_turn, n, p, 16));
        CHECK(plans.rate_of(stance::by_turn, n, p, 16) > double(n) / p.pass_us(int32_t(n), false));
    }
}

TEST(by_turn_on_shared_cores_and_in_sync_mode) {
    const pair_profile p = measured(20000, 200, 0.3, 0.8);
    pool_planner       shared;
    shared.expect({.shared = true});
    const pool_orders o = shared.orders(4, p, {.n_most = 16});
    CHECK(shared.stance_now() == stance::by_turn);
    CHECK(o.n_wait > 0 && o.n_ahead == o.n_wait);
    pool_planner sync;
    CHECK(sync.orders(4, p, {.n_most = 16, .sync = true}).n_ahead > 0);
    CHECK(sync.stance_now() == stance::by_turn);
}

TEST(guesses_that_are_seldom_ready_bring_less) {
    const pair_profile p    = measured(20000, 200, 0.3, 0.8);
    const auto         rate = [&p](bool ready) {
        pool_planner plans;
        see_guesses(plans, p, 2, ready, 400);
        return plans.rate_of(stance::ahead, 2, p, 16);
    };
    CHECK(rate(true) > 1.1 * rate(false));
}

TEST(what_a_way_has_brought_counts_more_than_what_was_expected) {
    const pair_profile p = measured(20000, 200, 0.3, 0.8);
    pool_planner       plans;
    (void)plans.orders(2, p, {.n_most = 16});
    CHECK(plans.stance_now() == stance::ahead);
    const double plain   = 2.0 / p.pass_us(2, false);
    int          n_ahead = 0;
    while (plans.stance_now() == stance::ahead && n_ahead < 200) { // better than plain decoding, but worse than turns
        plans.on_pass(p, 2, 2.0 / (1.1 * plain));
        (void)plans.orders(2, p, {.n_most = 16});
        ++n_ahead;
    }
    CHECK(n_ahead >= 4 && n_ahead < 60, std::to_string(n_ahead));
}

TEST(rest_where_nothing_pays) {
    const pair_profile dear = measured(20000, 19000, 0.3, 0.8);
    pool_planner       plans;
    for (int i = 0; i < 8; ++i) {
        CHECK_EQ(plans.orders(4, dear, {.n_most = 16}).n_ahead, 0);
        CHECK(plans.stance_now() == stance::rest);
    }
    CHECK_EQ(plans.orders(4, dear, {}).n_ahead, 0); // no text has a draft

    // Expected to pay, but it does not: judged after some passes.
    const pair_profile p = measured(20000, 200, 0.3, 0.8);
    pool_planner       late;
    int                n = 0;
    while (late.orders(2, p, {.n_most = 16}).n_ahead > 0 && n < 200) {
        late.on_pass(p, 2, 21000);
        ++n;
    }
    CHECK(n >= 12 && n < 60, std::to_string(n));
}

TEST(a_trial_that_cost_much_is_not_repeated_soon) {
    const pair_profile p     = measured(20000, 200, 0.3, 0.8);
    const auto         rests = [&p](double read_us) { // passes until drafts are tried again
        pool_planner plans;
        (void)plans.orders(2, p, {.n_most = 16});
        plans.on_pass(p, 2, read_us, true); // the drafts read their texts; it says nothing of later passes
        for (int i = 0; plans.orders(2, p, {.n_most = 16}).n_ahead > 0 && i < 200; ++i) {
            plans.on_pass(p, 2, 20400);
        }
        int n = 1;
        while (plans.orders(2, p, {.n_most = 16}).n_ahead == 0 && n < 20000) {
            ++n;
        }
        return n;
    };
    const int n_cheap = rests(20200);
    const int n_dear  = rests(20200 + 100000);
    CHECK(n_cheap >= 128 && n_cheap < 200, std::to_string(n_cheap));
    CHECK(n_dear >= 490 && n_dear < 600, std::to_string(n_dear)); // 100 ms are 1% of 500 passes
}

TEST(a_host_waits_for_no_client) {
    const pair_profile p = measured(20000, 6000, 0.5, 0.95);
    for (const bool shared : {false, true}) {
        for (const bool sync : {false, true}) {
            pool_planner plans;
            plans.expect({.shared = shared});
            (void)plans.orders(2, p, {.n_most = 16, .sync = sync, .no_waits = true});
            CHECK(plans.stance_now() == stance::ahead || plans.stance_now() == stance::rest);
        }
    }

    token_tree tree;
    tree.reset(1, 5);
    const auto wait_us = [&](bool no_waits) {
        pool_planner plans;
        (void)plans.orders(2, p, {.n_most = 16, .no_waits = no_waits});
        std::vector<pass_tree> trees(2);
        for (pass_tree & t : trees) {
            t.begin(tree, p.guesses(guess_kind::noise), 0.0);
        }
        std::vector<pool_share> shares{
            {.tree = &trees[0], .n_most = 8, .fixed = true, .drafting = true, .growing = true, .n_wait = 4},
            {.tree = &trees[1], .n_most = 8, .drafting = true, .away_us = 500000, .n_wait = 4}};
        const int64_t near = plans.next(shares, p, 32);
        shares[0].away_us  = 100000;
        return std::pair(near, plans.next(shares, p, 32));
    };
    CHECK_EQ(wait_us(true).second, 0);
    const auto [near, far] = wait_us(false);
    CHECK(near > 0);
    CHECK_EQ(far, near + 150000); // its own round trip, and not the other text's
}
