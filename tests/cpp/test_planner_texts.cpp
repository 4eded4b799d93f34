// Several texts share each pass: how they are written, by what was measured.
#include "planner_world.h"

using namespace duo_test;

namespace {

const plan_params asynchronous;
const plan_params turn_taking{.mode = run_mode::sync};
const tree_shape  no_shape;

int32_t n_ahead(const planner & plans, const plan_params & options = asynchronous) {
    return plans.orders({.plan = &options, .shape = &no_shape, .n_most = 16}).n_ahead;
}

// The texts' trees, without a guess.
struct company {
    explicit company(const pair_profile & p, size_t n) : trees(n) {
        token_tree tree;
        tree.reset(1, 5);
        for (pass_tree & t : trees) {
            t.begin(tree, p.guesses(guess_kind::noise), 0.0);
            shares.push_back({.tree = &t, .plan = &asynchronous, .shape = &no_shape, .n_most = 8});
        }
    }
    std::vector<pass_tree>  trees;
    std::vector<text_share> shares;
};

} // namespace

TEST(ahead_where_rows_are_cheap) {
    for (const int32_t n : {2, 4, 8}) {
        planner plans;
        measure(plans.profile(), 20000, 200, 0.3, 0.8);
        plans.begin(asynchronous, {.n_texts = n});
        CHECK(n_ahead(plans) > 0);
        CHECK(plans.stance_now() == stance::ahead);
        CHECK(plans.worth().saves(100) > 0.0);
    }
}

TEST(by_turn_on_shared_cores_and_in_sync_mode) {
    for (const bool sync : {false, true}) {
        const plan_params & options = sync ? turn_taking : asynchronous;
        planner             plans;
        plans.expect({.shared = !sync});
        measure(plans.profile(), 20000, 200, 0.3, 0.8);
        plans.begin(options, {.n_texts = 4});
        CHECK(plans.stance_now() == stance::by_turn);
        CHECK(n_ahead(plans, options) > 1 && n_ahead(plans, options) < 10);
        // The pass waits for the guesses of each text.
        company texts(plans.profile(), 4);
        texts.shares[2].growing = true;
        CHECK(plans.next(texts.shares) > 0);
        texts.shares[2].growing = false;
        CHECK_EQ(plans.next(texts.shares), 0);
    }
}

TEST(texts_that_share_cores_never_run_ahead) {
    planner plans;
    plans.expect({.shared = true});
    measure(plans.profile(), 20000, 200, 0.6, 0.9);
    for (const int32_t n : {1, 4}) {
        plans.begin(asynchronous, {.n_texts = n});
        bool ahead = false;
        for (int i = 0; i < 1000; ++i) {
            plans.on_pass({.n_tokens = 3 * n, .us = 50000});
            ahead = ahead || plans.stance_now() == stance::ahead;
        }
        CHECK_EQ(ahead, n == 1, std::to_string(n));
    }
}

TEST(what_a_way_has_brought_counts_more_than_what_was_expected) {
    planner plans;
    measure(plans.profile(), 20000, 200, 0.3, 0.8);
    plans.begin(asynchronous, {.n_texts = 2});
    REQUIRE(plans.stance_now() == stance::ahead);
    const double plain = 2.0 / plans.profile().pass_us(2, false);
    int          n     = 0;
    while (plans.stance_now() == stance::ahead && n < 200) { // better than plain decoding, but worse than turns
        plans.on_pass({.n_tokens = 2, .us = 2.0 / (1.1 * plain)});
        ++n;
    }
    CHECK(plans.stance_now() == stance::by_turn);
    CHECK(n >= 4 && n < 60, std::to_string(n));
}

TEST(what_is_known_of_one_text_is_not_that_of_several) {
    planner plans;
    measure(plans.profile(), 20000, 200, 0.3, 0.8);
    plans.begin(asynchronous, {.n_texts = 2});
    for (int i = 0; i < 200; ++i) {
        plans.on_pass({.n_tokens = 2, .us = 21000});
    }
    CHECK(plans.stance_now() != stance::ahead);
    plans.begin(asynchronous);
    CHECK(plans.stance_now() == stance::ahead);
    plans.begin(asynchronous, {.n_texts = 2});
    CHECK(plans.stance_now() != stance::ahead);
}

TEST(rest_where_nothing_pays) {
    planner dear; // rows cost too much
    measure(dear.profile(), 20000, 19000, 0.3, 0.8);
    planner late; // it was expected to pay, but it does not
    measure(late.profile(), 20000, 200, 0.3, 0.8);
    for (planner * plans : {&dear, &late}) {
        plans->begin(asynchronous, {.n_texts = 2});
        int n = 0;
        for (; plans->stance_now() != stance::rest && n < 200; ++n) {
            plans->on_pass({.n_tokens = 2, .us = 1.05 * plans->profile().pass_us(2, false)});
        }
        CHECK(n >= 4 && n < 100, std::to_string(n));
        CHECK_EQ(n_ahead(*plans), 0);
    }
    plan_params without = asynchronous;
    without.has_model   = false;
    CHECK_EQ(late.orders({.plan = &without, .shape = &no_shape}).n_ahead, 0);
}

TEST(a_trial_that_cost_much_is_not_repeated_soon) {
    const auto rests = [](double read_us) { // passes until drafts are tried again
        planner plans;
        measure(plans.profile(), 20000, 200, 0.3, 0.8);
        plans.begin(asynchronous, {.n_texts = 2});
        // The drafts read their texts; it says nothing of later passes.
        plans.on_pass({.n_tokens = 2, .us = read_us, .usual = false});
        for (int i = 0; plans.stance_now() != stance::rest && i < 200; ++i) {
            plans.on_pass({.n_tokens = 2, .us = 20400});
        }
        int n = 0;
        for (; plans.stance_now() == stance::rest && n < 20000; ++n) {
            plans.on_pass({.n_tokens = 2, .us = 20200});
        }
        return n;
    };
    const int n_cheap = rests(20200);
    const int n_stop  = rests(3.6e9); // an hour: somebody has stopped the process
    const int n_dear  = rests(20200 + 200000);
    CHECK(n_cheap >= 64 && n_cheap < 100, std::to_string(n_cheap));
    CHECK(n_dear >= 490 && n_dear < 600, std::to_string(n_dear)); // 200 ms are 2% of 500 passes
    CHECK(n_stop > 64 && n_stop < 3000, std::to_string(n_stop));
}

TEST(what_drafts_read_while_they_paid_makes_no_rest_longer) {
    planner plans;
    measure(plans.profile(), 20000, 200, 0.3, 0.8);
    plans.begin(asynchronous, {.n_texts = 2});
    for (int i = 0; i < 100; ++i) { // texts come and go
        plans.on_pass({.n_tokens = 2, .us = 220000, .usual = false});
        for (int j = 0; j < 60; ++j) {
            plans.on_pass({.n_tokens = 6, .us = 20400});
        }
    }
    REQUIRE(plans.stance_now() != stance::rest);
    for (int i = 0; plans.stance_now() != stance::rest && i < 2000; ++i) {
        plans.on_pass({.n_tokens = 2, .us = 30000});
    }
    int n = 0;
    for (; plans.stance_now() == stance::rest && n < 20000; ++n) {
        plans.on_pass({.n_tokens = 2, .us = 20200});
    }
    CHECK(n >= 64 && n < 100, std::to_string(n));
}

TEST(nodes_of_all_texts_compete_for_rows) {
    planner plans;
    measure(plans.profile(), 20000, 4000, 0.1, 0.8);
    plans.begin(asynchronous, {.n_texts = 2});
    token_tree sure;
    sure.reset(1, 5);
    sure.insert(2, 1, 6, -0.05f);
    sure.insert(3, 2, 6, -0.05f);
    token_tree unsure;
    unsure.reset(1, 5);
    unsure.insert(2, 1, 6, -4.0f);
    company texts(plans.profile(), 2);
    texts.trees[0].begin(unsure, plans.profile().guesses(guess_kind::noise), 0.0);
    texts.trees[1].begin(sure, plans.profile().guesses(guess_kind::noise), 0.0);
    REQUIRE(plans.next(texts.shares) == 0);
    CHECK_EQ(texts.trees[0].rows().size(), 0u);
    CHECK(!texts.trees[1].rows().empty());
    CHECK(texts.shares[1].expected > 1.5);
    // What a text's options have fixed is verified whatever it costs.
    const plan_params always{.always = true};
    texts.shares[0].plan  = &always;
    texts.shares[0].fixed = true;
    REQUIRE(plans.next(texts.shares) == 0);
    CHECK_EQ(texts.trees[0].rows().size(), 1u);
}

// On a verify host the texts are those of several clients.
TEST(no_text_widens_the_passes_of_others) {
    planner plans;
    for (const double beside : {0.0, 1.0}) {
        for (int i = 0; i < 3; ++i) { // no pass was wider than two rows
            plans.profile().on_pass(1, 20000, beside);
            plans.profile().on_pass(2, 20100, beside);
            plans.profile().on_step(1, 6000.0f, beside);
            plans.profile().on_step(2, 6000.0f, beside);
        }
    }
    token_tree sure;
    sure.reset(1, 5);
    for (node_id i = 2; i < 20; ++i) {
        sure.insert(i, i - 1, 6, -0.01f);
    }
    const plan_params eager{.n_min = 64};
    for (const size_t i_eager : {size_t(0), size_t(1)}) {
        plans.begin(asynchronous, {.n_texts = 2});
        company texts(plans.profile(), 2);
        for (pass_tree & t : texts.trees) {
            t.begin(sure, plans.profile().guesses(guess_kind::noise), 0.0);
        }
        texts.shares[i_eager].plan = &eager;
        REQUIRE(plans.next(texts.shares) == 0);
        const size_t n = texts.trees[0].rows().size() + texts.trees[1].rows().size();
        CHECK(n > 0 && n <= 4, std::to_string(n)); // twice as wide as the widest
    }
}

TEST(a_host_waits_for_no_client) {
    for (const bool shared : {false, true}) {
        for (const plan_params & options : {asynchronous, turn_taking}) {
            planner plans;
            plans.expect({.shared = shared});
            measure(plans.profile(), 20000, 6000, 0.5, 0.95);
            plans.begin(options, {.n_texts = 2, .no_waits = true});
            for (int i = 0; i < 300; ++i) {
                CHECK(plans.stance_now() != stance::by_turn);
                plans.on_pass({.n_tokens = 2, .us = i < 150 ? 27000.0 : 13000.0});
            }
        }
    }
    const plan_params always{.always = true};
    for (const bool no_waits : {false, true}) {
        planner plans;
        measure(plans.profile(), 20000, 6000, 0.5, 0.95);
        plans.begin(asynchronous, {.n_texts = 2, .no_waits = no_waits});
        company texts(plans.profile(), 2);
        texts.shares[0].plan    = &always;
        texts.shares[0].fixed   = true;
        texts.shares[0].growing = true;
        texts.shares[1].away_us = 500000;
        const int64_t near      = plans.next(texts.shares);
        texts.shares[0].away_us = 100000;
        const int64_t far       = plans.next(texts.shares);
        CHECK_EQ(near > 0, !no_waits);
        CHECK_EQ(far, near + (no_waits ? 0 : 150000)); // its own round trip, and not the other text's
    }
}

TEST(nobody_waits_for_a_draft_that_was_told_to_rest) {
    const plan_params always{.always = true};
    planner           plans;
    plans.expect({.shared = true});
    measure(plans.profile(), 20000, 200, 0.3, 0.8);
    plans.begin(asynchronous, {.n_texts = 2});
    REQUIRE(plans.stance_now() == stance::by_turn);
    for (const bool fixed : {false, true}) {
        company texts(plans.profile(), 2);
        texts.shares[0].plan    = fixed ? &always : &asynchronous;
        texts.shares[0].fixed   = fixed;
        texts.shares[0].growing = true;
        CHECK(plans.next(texts.shares) > 0);
        texts.shares[0].n_told = 0;
        CHECK_EQ(plans.next(texts.shares), 0);
    }
}

TEST(a_rest_lasts_though_texts_come_and_go) {
    planner plans;
    measure(plans.profile(), 20000, 200, 0.3, 0.8);
    int n_drafted = 0;
    for (int i = 0; i < 3000; ++i) {
        if (i % 20 == 0) {
            plans.begin(asynchronous, {.n_texts = 3 + i / 20 % 2});
        }
        n_drafted += plans.stance_now() == stance::rest ? 0 : 1;
        const int32_t n = 3 + i / 20 % 2;
        plans.on_pass({.n_tokens = n, .us = (plans.stance_now() == stance::rest ? 1.0 : 1.4) * 20400});
    }
    CHECK(n_drafted < 900, std::to_string(n_drafted));
}

TEST(texts_without_a_draft_are_at_rest) {
    plan_params without = asynchronous;
    without.has_model   = false;
    planner plans;
    plans.begin(without, {.n_texts = 3});
    CHECK(plans.stance_now() == stance::rest);
}
