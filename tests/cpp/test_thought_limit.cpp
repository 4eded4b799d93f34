// Thoughts end where their limit is reached, and nothing else changes.
#include <cmath>

#include "check.h"
#include "text/hook_chain.h"
#include "text/thought_limit.h"

using namespace duo;

namespace {

constexpr token_id begin_mark = 7, end_mark = 8, begin_of_two = 5, half = 9, other_half = 0;
constexpr size_t   n_vocab = 10;

std::vector<thought_marks> marks() {
    return {{.begin = "<t>", .end = "</t>", .forced = {2, 3, end_mark}},
            {.begin = "[[six", .end = "six[[", .forced = {6, 5}}};
}

std::string spelled(token_id token) {
    const char * const pieces[n_vocab] = {"\xA9", " one", " two",    " three", "x",
                                          "[[",   "six",  "\n<t>\n", "</t>",   "\xC3"};
    return pieces[token];
}

// What a model writes that would write `wanted`, if nothing forced it to other tokens. A token that it did not want
// takes the place of the one that it did.
std::vector<token_id> written(std::vector<token_id> text, const std::vector<token_id> & wanted, int32_t n_most,
                              const std::shared_ptr<token_hook> & ask = nullptr) {
    const auto            limits = std::make_shared<thought_limit>(marks(), n_most, spelled);
    hook_chain            limit(ask ? std::vector<std::shared_ptr<token_hook>>{ask, limits}
                                    : std::vector<std::shared_ptr<token_hook>>{limits});
    std::vector<token_id> out;
    for (const token_id w : wanted) {
        std::vector<float> logits(n_vocab, 0.0f);
        logits[size_t(w)] = 1.0f;
        if (!limit.on_row(text, logits)) {
            break;
        }
        const auto best = token_id(std::max_element(logits.begin(), logits.end()) - logits.begin());
        CHECK(best == w || std::isinf(logits[size_t(w)])); // forced: nothing else is left
        text.push_back(best);
        out.push_back(best);
    }
    return out;
}

using tokens = std::vector<token_id>;

} // namespace

TEST(a_long_thought_ends_at_its_limit) {
    CHECK(written({1}, {begin_mark, 4, 4, 4, 4, 4, 4, 4, 1, 1}, 3) ==
          (tokens{begin_mark, 4, 4, 4, 2, 3, end_mark, 4, 1, 1}));
    CHECK(written({1}, {begin_mark, 4, 4, 4}, 0) == (tokens{begin_mark, 2, 3, end_mark}));
}

TEST(a_short_one_is_left_alone) {
    const tokens all{begin_mark, 4, 4, end_mark, 1, 1, 1, 1, 1, 1};
    CHECK(written({1}, all, 3) == all);
    const tokens none(20, 4);
    CHECK(written({1}, none, 3) == none);
}

TEST(the_prompt_may_begin_it_and_does_not_count) {
    CHECK(written({1, begin_mark, 4, 4, 4, 4}, {4, 4, 4, 4, 4, 4, 1}, 2) == (tokens{4, 4, 2, 3, end_mark, 4, 1}));
    CHECK(written({1, begin_mark}, {4, 4, 4, 4}, 0) == (tokens{2, 3, end_mark, 4}));
    const tokens free(9, 4);
    CHECK(written({begin_mark, 4, 4, end_mark, 1}, free, 2) == free);
}

TEST(each_thought_has_its_own_limit) {
    CHECK(written({1}, {begin_mark, 4, end_mark, 1, begin_mark, 4, 4, 4, 4, 4, 1}, 2) ==
          (tokens{begin_mark, 4, end_mark, 1, begin_mark, 4, 4, 2, 3, end_mark, 1}));
}

TEST(marks_may_be_several_tokens_and_belong_together) {
    CHECK(written({1}, {begin_of_two, 6, 4, 4, end_mark, 4, 4, 1}, 3) ==
          (tokens{begin_of_two, 6, 4, 4, end_mark, 6, 5, 1}));
    const tokens all{begin_of_two, 6, 4, 6, 5, 4, 4, 4, 4};
    CHECK(written({1}, all, 4) == all);
    const tokens apart{begin_of_two, 4, 6, 4, 4, 4, 4, 4};
    CHECK(written({1}, apart, 2) == apart);
}

TEST(a_character_is_completed_first) {
    CHECK(written({1}, {begin_mark, 4, half, other_half, 4, 4, 4, 1}, 2) ==
          (tokens{begin_mark, 4, half, other_half, 2, 3, end_mark, 1}));
}

TEST(a_hook_before_it_can_end_the_text) {
    struct forbids : token_hook {
        int  n_asked = 0;
        bool on_row(std::span<const token_id> text, std::span<float> logits) override {
            ++n_asked;
            logits[end_mark] = -INFINITY; // the limit still ends the thought
            return text.size() < 8;
        }
    };
    const auto hook = std::make_shared<forbids>();
    CHECK(written({1}, {begin_mark, 4, 4, 4, 4, 4, 4, 4}, 1, hook) == (tokens{begin_mark, 4, 2, 3, end_mark, 4, 4}));
    CHECK_EQ(hook->n_asked, 8);
}

TEST(a_grammar_that_forbids_the_end_comes_first) {
    thought_limit      limit(marks(), 1, spelled);
    tokens             text{1, begin_mark};
    const auto         row = [] { return std::vector<float>(n_vocab, 0.0f); };
    std::vector<float> logits;
    const auto         forces = [&](token_id t) {
        limit.on_row(text, logits = row());
        return std::isfinite(logits[size_t(t)]) && std::isinf(logits[4]);
    };
    limit.on_row(text, logits = row()); // what the prompt has does not count
    CHECK(!limit.refused());
    text.push_back(4);
    for (int i = 0; i < 3; ++i) { // it is tried again and again
        CHECK(forces(2));
        CHECK(!limit.refused());
        limit.reconsider(text, logits = row());
        CHECK(std::isfinite(logits[4]));
        text.push_back(4);
    }
    for (const token_id t : {2, 3}) { // what is said is said once
        CHECK(forces(t));
        text.push_back(t);
    }
    for (int i = 0; i < 3; ++i) {
        CHECK(forces(end_mark));
        CHECK(!limit.refused());
        text.push_back(4);
    }
    CHECK(forces(end_mark));
    text.push_back(end_mark);
    CHECK(!forces(2));
}

TEST(a_mark_of_which_only_a_part_is_allowed_is_tried_once) {
    thought_limit      limit(marks(), 0, spelled);
    tokens             text{1, begin_of_two, 6};
    std::vector<float> logits(n_vocab, 0.0f);
    limit.on_row(text, logits);
    CHECK(std::isfinite(logits[6]) && std::isinf(logits[4]));
    text.push_back(6);
    limit.on_row(text, logits = std::vector<float>(n_vocab, 0.0f));
    CHECK(std::isfinite(logits[5]) && std::isinf(logits[4]));
    limit.refused();
    text.push_back(4);
    limit.on_row(text, logits = std::vector<float>(n_vocab, 0.0f));
    CHECK(std::isfinite(logits[4]));
}
