// What predictors say of a layer's experts, and which experts are chosen to be fetched.
#include <vector>

#include "check.h"
#include "experts/expert_forecast.h"
#include "experts/ranking.h"

using namespace duo;

namespace {

constexpr expert_shape shape{.n_layer = 3, .n_expert = 8, .n_used = 2};
constexpr size_t       n_memory = 1 << 20;

std::vector<float> said(const expert_predictor & p, int32_t layer, token_id token, size_t row = 0) {
    std::vector<float> out(size_t(shape.n_expert), -1.0f);
    p.score(layer, row, token, out);
    return out;
}

std::vector<int32_t> ranked(const std::vector<float> & scores, size_t n = 8) {
    std::vector<int32_t> out;
    rank_experts(scores, n, out);
    return out;
}

using experts = std::vector<int32_t>;

template <class T> void teach(T & p, int32_t layer, std::vector<token_id> tokens, const experts & chosen) {
    p.learn(layer, tokens, {.experts = chosen, .n_used = shape.n_used});
}

// Says that one expert is needed.
std::vector<float> router_for(int32_t expert) {
    std::vector<float> out(size_t(shape.n_expert), -3.0f);
    out[size_t(expert)] = -1.0f;
    return out;
}

std::vector<layer_expert> chosen(expert_forecast & f, int32_t first, double n_in_time) {
    std::vector<layer_expert> out;
    f.choose(first, n_in_time, out);
    return out;
}

} // namespace

TEST(experts_are_ranked_by_what_speaks_for_them) {
    CHECK(ranked({0, 2, 0, 5, 2, 0, 0, 1}) == experts({3, 1, 4, 7}));
    CHECK(ranked({0, 2, 0, 5, 2, 0, 0, 1}, 2) == experts({3, 1}));
    CHECK(ranked(std::vector<float>(8)).empty());
}

TEST(a_tokens_experts_are_remembered_by_layer) {
    token_experts p(shape, n_memory);
    CHECK(ranked(said(p, 0, 5)).empty());
    teach(p, 0, {5, 6}, {1, 2, 3, 4});
    CHECK(ranked(said(p, 0, 5)) == experts({1, 2}));
    CHECK(ranked(said(p, 0, 6)) == experts({3, 4}));
    CHECK(ranked(said(p, 1, 5)).empty());
    CHECK(ranked(said(p, 0, no_token)).empty());
    teach(p, 0, {no_token}, {6, 7});
    for (int i = 0; i < 3; ++i) {
        teach(p, 0, {5}, {2, 7});
    }
    CHECK(ranked(said(p, 0, 5)) == experts({2, 7, 1})); // older choices count less
    teach(p, 0, {5}, {3, 4});
    CHECK_EQ(ranked(said(p, 0, 5)).size(), 4u); // twice as many as a row needs are kept
}

TEST(the_memory_for_tokens_is_bounded) {
    token_experts p(shape, 1); // one place
    teach(p, 2, {5}, {1, 2});
    CHECK(ranked(said(p, 2, 5)) == experts({1, 2}));
    teach(p, 2, {1000000}, {3, 4});
    CHECK(ranked(said(p, 2, 1000000)) == experts({3, 4}));
    CHECK(ranked(said(p, 2, 5)).empty());
}

TEST(the_experts_of_the_last_rows_come_first) {
    recent_experts p(shape);
    teach(p, 1, {5, 6}, {1, 2, 1, 3});
    CHECK(ranked(said(p, 1, no_token), 1) == experts({1}));
    for (int i = 0; i < 6; ++i) {
        teach(p, 1, {7}, {4, 5});
    }
    CHECK(ranked(said(p, 1, no_token), 2) == experts({4, 5}));
    CHECK(ranked(said(p, 0, no_token)).empty());
}

TEST(a_router_is_heard_until_its_layer_has_chosen) {
    next_router p;
    CHECK(ranked(said(p, 1, 5)).empty());
    const std::vector<float> says{-1, -5, -2, -9, -9, -9, -9, -9, 0, 0, 0, 1, 0, 0, 0, 2};
    p.hear(1, says);
    CHECK(ranked(said(p, 1, 5, 0)) == experts({0, 2, 1}));
    CHECK(ranked(said(p, 1, 5, 1)) == experts({7, 3}));
    CHECK(ranked(said(p, 1, 5, 2)).empty()); // no such row
    CHECK(ranked(said(p, 2, 5)).empty());
    p.hear(2, router_for(4));
    CHECK(ranked(said(p, 2, 5)) == experts({4}));
    CHECK(ranked(said(p, 1, 5)) == experts({0, 2, 1})); // which has not chosen yet
    CHECK(ranked(said(p, 0, 5)).empty());
    p.forget(2);
    CHECK(ranked(said(p, 2, 5)).empty());
    CHECK(!ranked(said(p, 1, 5)).empty());
    p.forget();
    CHECK(ranked(said(p, 1, 5)).empty());
}

TEST(predictors_count_as_much_as_they_were_right) {
    token_experts  token(shape, n_memory);
    next_router    router;
    joined_experts p(shape, {&token, &router});
    for (int i = 0; i < 30; ++i) { // tokens are right, the router is wrong
        router.hear(1, router_for(7));
        teach(p, 1, {5}, {1, 2});
    }
    router.hear(1, router_for(6));
    CHECK(ranked(said(p, 1, 5), 2) == experts({1, 2}));
    CHECK(said(p, 1, 5)[1] > 0.9f);
    CHECK(said(p, 1, 5)[6] < 0.1f);
    for (int i = 0; i < 200; ++i) { // and then the other way round: no choice is like one of the last two
        router.hear(1, router_for(i % 3));
        teach(p, 1, {5}, {i % 3, 3 + i % 3});
    }
    router.hear(1, router_for(6));
    CHECK(ranked(said(p, 1, 5), 1) == experts({6}));
    CHECK(said(p, 1, 5)[6] > 0.9f);
}

TEST(the_surest_experts_of_the_next_layers_are_fetched_as_far_as_there_is_time) {
    expert_forecast f(shape, n_memory);
    CHECK(chosen(f, 0, 8.0).empty());
    const std::vector<token_id> tokens{5};
    for (int i = 0; i < 30; ++i) {
        f.begin(tokens);
        for (int32_t layer = 0; layer < 3; ++layer) {
            f.learn(layer, tokens, {.experts = experts({layer, layer + 4}), .n_used = 2});
        }
    }
    f.begin(tokens);
    using these = std::vector<layer_expert>;
    CHECK(chosen(f, 0, 8.0) == these({{0, 0}, {0, 4}, {1, 1}, {1, 5}, {2, 2}, {2, 6}}));
    CHECK(chosen(f, 0, 1.0) == these({{0, 0}, {1, 1}, {2, 2}}));
    CHECK(chosen(f, 1, 0.5) == these({{2, 2}})); // one expert takes as long as two layers
    CHECK(chosen(f, 3, 8.0).empty());
    f.hear_router(1, router_for(3)); // of which nothing is known yet
    CHECK(chosen(f, 1, 2.0) == these({{1, 1}, {1, 5}, {2, 2}, {2, 6}}));
    for (const float x : f.chances(1)) {
        CHECK(x >= 0.0f && x <= 1.0f);
    }
}

TEST(a_pass_over_many_rows_needs_all_experts) {
    expert_forecast             f(shape, n_memory);
    const std::vector<token_id> tokens(16, 5);
    f.begin(tokens);
    CHECK_EQ(chosen(f, 0, 8.0).size(), 24u);
    CHECK_EQ(chosen(f, 2, 3.0).size(), 3u);
}

TEST(recall_is_counted_before_predictors_learn) {
    expert_forecast f(shape, n_memory);
    f.measure();
    const std::vector<token_id> tokens{5};
    const experts               needed{1, 2};
    f.begin(tokens);
    f.learn(0, tokens, {.experts = needed, .n_used = 2});
    for (const expert_recall * r : {&f.recall(0), &f.recall(1), &f.recall(2), &f.recall(3)}) {
        CHECK_EQ(r->at(8), 0.0);
    }
    f.learn(0, tokens, {.experts = needed, .n_used = 2});
    CHECK_EQ(f.recall(0).at(2), 0.5);
    CHECK_EQ(f.recall(1).at(2), 0.5);
    CHECK_EQ(f.recall(2).at(2), 0.0);
    CHECK_EQ(f.recall(3).at(2), 0.5);
    CHECK_EQ(f.recall(3).at(1), 0.25);
}

TEST(a_router_that_heard_of_other_rows_is_forgotten) {
    expert_forecast f(shape, n_memory);
    f.measure();
    std::vector<float> says = router_for(1);
    f.begin(std::vector<token_id>{6});
    f.hear_router(2, says);
    f.learn(2, std::vector<token_id>{6}, {.experts = experts({1, 2}), .n_used = 2});
    CHECK_EQ(f.recall(2).at(8), 0.5);
    says.insert(says.end(), says.begin(), says.end());
    f.begin(std::vector<token_id>{5, 6});
    f.hear_router(2, says);
    f.learn(2, std::vector<token_id>{6}, {.experts = experts({1, 2}), .n_used = 2}); // the first row has no output
    CHECK_EQ(f.recall(2).at(8), 0.25);
}

// As a backend tells it: the next layer's router speaks when this one's is computed, before this layer has learned.
TEST(what_a_router_says_one_layer_early_counts) {
    constexpr int32_t           n_layer = 5;
    expert_forecast             f({.n_layer = n_layer, .n_expert = 8, .n_used = 1}, n_memory);
    const std::vector<token_id> tokens{no_token};
    const auto                  needed = [](int pass, int32_t layer) { return (pass * (layer + 3) + layer) % 8; };
    f.measure();
    for (int pass = 0; pass < 100; ++pass) {
        f.begin(tokens);
        for (int32_t layer = 0; layer < n_layer; ++layer) {
            if (layer + 1 < n_layer) {
                f.hear_router(layer + 1, router_for(needed(pass, layer + 1)));
            }
            f.learn(layer, tokens, {.experts = experts({needed(pass, layer)}), .n_used = 1});
        }
    }
    CHECK_EQ(f.recall(2).at(1), double(n_layer - 1) / n_layer); // the first layer has none before it
    CHECK(f.recall(3).at(1) > 0.75);
    for (int32_t layer = 1; layer < n_layer; ++layer) {
        f.begin(tokens);
        f.hear_router(layer, router_for(6));
        CHECK(f.chances(layer)[6] > 0.9f);
    }
}
