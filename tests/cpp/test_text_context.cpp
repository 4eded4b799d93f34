// What the target sees of a text after context shifts, and that no mode changes it.
#include "asks.h"
#include "text/text_context.h"

using namespace duo_test;

namespace {

std::vector<token_id> counted(token_id first, int32_t n) {
    std::vector<token_id> out(static_cast<size_t>(n));
    std::iota(out.begin(), out.end(), first);
    return out;
}

ask endless(int32_t n_prompt, int32_t n_predict, const context_shift & how) {
    ask q;
    q.prompt.assign(size_t(n_prompt), 5);
    q.n_predict   = n_predict;
    q.shift       = how;
    q.plan.always = true;
    return q;
}

} // namespace

TEST(half_of_what_may_go_goes) {
    text_context c;
    c.begin(counted(0, 10), {.on = true, .n_keep = 3}, 20);
    CHECK_EQ(c.n_room(), 9); // the token after the last guess has room, too
    for (token_id t = 10; t < 20; ++t) {
        CHECK(!c.shift_due());
        c.add(t);
    }
    CHECK(c.shift_due() && c.is_full());
    CHECK_EQ(c.n_next_shift(), (19 - 3) / 2); // llama-server counts without the last token
    c.shift();
    auto want = counted(0, 3);
    for (token_id t = 11; t < 20; ++t) {
        want.push_back(t);
    }
    CHECK_EQ(c.tokens(), want);
    CHECK(!c.is_full());
    CHECK_EQ(c.n_left_out(), 8);
    CHECK_EQ(c.n_first(), 3);
}

TEST(what_was_asked_for_is_bounded) {
    text_context c;
    c.begin(counted(0, 20), {.on = true, .n_keep = 50, .n_discard = 100}, 20);
    CHECK_EQ(c.n_first(), 16); // some tokens can always go
    CHECK_EQ(c.n_next_shift(), 2);
    c.begin(counted(0, 20), {.on = true, .n_keep = 0, .n_discard = 100}, 20);
    CHECK_EQ(c.n_next_shift(), 18);
    c.begin(counted(0, 20), {.on = true, .n_keep = 0, .n_discard = 4}, 20);
    CHECK_EQ(c.n_next_shift(), 4);
    c.begin(counted(0, 20), {}, 20);
    CHECK(c.is_full() && !c.shift_due());
    c.begin(counted(0, 4), {.on = true}, 4); // there is nothing that could go
    CHECK(c.is_full() && !c.shift_due());
}

TEST(a_text_goes_on_beyond_its_context_in_every_mode) {
    for (const bool shifts : {true, false}) {
        for (const run_mode mode : {run_mode::plain, run_mode::sync, run_mode::async}) {
            pair p(behaviour{.n_ctx = 100, .shifts = shifts}, behaviour{.n_ctx = 100, .agree = 0.8});
            ask  q          = endless(10, 700, {.on = true, .n_keep = 4}).as(mode, 4);
            q.sampling.temp = 0.9f;
            const answer a  = p.run(q);
            CHECK_EQ(a.tokens.size(), size_t(700));
            CHECK_EQ(a.stats.n_shifts, 1 + (710 - 100 - 1) / ((99 - 4) / 2));
            CHECK_EQ(p.target.n_shifted.load(), shifts ? a.stats.n_shifts : 0);
            CHECK_EQ(a.stats.n_drafted > 0, mode != run_mode::plain);
            CHECK(mode != run_mode::sync || a.stats.n_accepted > 300, std::to_string(a.stats.n_accepted));
        }
    }
}

// What was computed with tokens that are gone is of no use to another text.
TEST(the_next_text_gets_only_what_came_before_the_gap) {
    pair         p(behaviour{.n_ctx = 100}, behaviour{.n_ctx = 100});
    const ask    q = endless(10, 120, {.on = true, .n_keep = 6});
    const answer a = p.run(q);
    CHECK(a.stats.n_shifts > 0);
    CHECK_EQ(p.run(q, "again").stats.n_prompt_cached, 6);
}

// It reads the text anew, with a window or without one.
TEST(a_draft_begins_again_after_a_shift) {
    for (const int32_t n_window : {n_window_auto, n_window_all, 20}) {
        pair p(behaviour{.n_ctx = 200}, behaviour{.n_ctx = 200});
        ask  q          = endless(10, 600, {.on = true}).as(run_mode::sync, 4);
        q.plan.n_window = n_window;
        const answer a  = p.run(q);
        CHECK_EQ(a.stats.n_shifts, 5);
        CHECK(a.stats.n_accepted > 400, std::to_string(a.stats.n_accepted));
    }
}
