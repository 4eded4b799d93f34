// Errands between two texts: caches that are saved and restored, and scores of a text.
#include "base/same.h"
#include "model/errand.h"
#include "pair.h"

using namespace duo_test;

namespace {

const ask asked = [] {
    ask q{.prompt = std::vector<token_id>(90, 4), .n_predict = 40};
    q.prompt[7] = 2;
    return q;
}();

answer run(pair & p, errand & job, std::vector<token_id> prompt = {}) {
    return run_errand(p.line, job, std::move(prompt));
}

} // namespace

TEST(what_is_saved_comes_back_in_another_pair) {
    for (const run_mode mode : {run_mode::plain, run_mode::sync, run_mode::async}) {
        const ask q = asked.as(mode, 4);
        pair      a({}, behaviour{.agree = 0.7});
        errand    saved;
        // A text may be over before its draft has been woken.
        for (int i = 0; i == 0 || (mode != run_mode::plain && saved.draft.tokens.empty() && i < 100); ++i) {
            a.run(q);
            saved = {.what = errand::kind::save};
            CHECK_EQ(run(a, saved).finish, finish_reason::stop);
        }
        REQUIRE(saved.target.tokens.size() >= q.prompt.size());
        CHECK(std::equal(q.prompt.begin(), q.prompt.end(), saved.target.tokens.begin()));
        CHECK_EQ(saved.draft.tokens.empty(), mode == run_mode::plain);
        CHECK(a.draft.cached(0) == saved.draft.tokens);

        pair b({}, behaviour{.agree = 0.7});
        b.run(ask{.prompt = {1, 5, 5}}.as(mode, 4));
        errand job = given(saved);
        CHECK_EQ(run(b, job).finish, finish_reason::stop);
        CHECK(b.target.cached(0) == saved.target.tokens);
        errand look;
        run(b, look);
        CHECK(look.target.tokens == saved.target.tokens);
        CHECK(mode == run_mode::plain || look.draft.tokens == saved.draft.tokens);
        CHECK_EQ(b.run(q).stats.n_prompt_cached, int32_t(q.prompt.size()) - 1);
        a.run(q);
    }
}

TEST(a_place_is_saved_restored_and_erased_by_its_number) {
    for (const bool with_draft : {false, true}) {
        const run_mode mode = with_draft ? run_mode::async : run_mode::plain;
        scripted_model target({.n_branch = 8, .n_spare = 600});
        scripted_model draft({.n_branch = 8, .n_spare = 600, .agree = 0.7});
        pipeline       line(&target, with_draft ? &draft : nullptr, {.n_texts = 2});
        const auto     write = [&](const ask & q) {
            line.begin(q.as(mode, 4).make());
            check_same(read_all(line), reference({}, target.facts().n_ctx, q), "");
        };
        const auto here = [&](int32_t place) {
            errand look;
            CHECK_EQ(run_errand(line, look, {}, place).finish, finish_reason::stop);
            return look;
        };
        write(asked);
        write(ask{.prompt = {1, 5, 5, 3}});
        errand saved{.what = errand::kind::save};
        CHECK_EQ(run_errand(line, saved, {}, 1).finish, finish_reason::stop);
        CHECK(saved.target.tokens == here(1).target.tokens && saved.draft.tokens == here(1).draft.tokens);
        const auto first = here(0).target.tokens;
        CHECK(n_same(first, saved.target.tokens) < 4 && first.size() > asked.prompt.size());
        errand erased{.what = errand::kind::erase};
        CHECK_EQ(run_errand(line, erased, {}, 0).finish, finish_reason::stop);
        CHECK(erased.target.tokens == first);
        CHECK(here(0).target.tokens.empty() && here(0).draft.tokens.empty());
        CHECK(here(1).target.tokens == saved.target.tokens);
        errand back = given(saved); // into the other place
        CHECK_EQ(run_errand(line, back, {}, 0).finish, finish_reason::stop);
        CHECK(here(0).target.tokens == saved.target.tokens && here(0).draft.tokens == saved.draft.tokens);
        write(asked);
    }
}

TEST(only_the_beginning_is_kept) {
    pair a({}, behaviour{.agree = 0.7});
    a.run(asked.as(run_mode::async, 4));
    errand saved{.what = errand::kind::save, .n_keep = 50};
    run(a, saved);
    CHECK(saved.target.tokens == std::vector<token_id>(asked.prompt.begin(), asked.prompt.begin() + 50));
    CHECK(a.target.cached(0) == saved.target.tokens);
    CHECK_EQ(n_same(saved.draft.tokens, saved.target.tokens), int32_t(saved.draft.tokens.size()));
    CHECK(a.draft.cached(0) == saved.draft.tokens);
    CHECK_EQ(a.run(asked).stats.n_prompt_cached, 50);
}

TEST(a_cancelled_text_can_be_saved_in_any_state) {
    for (int n = 0; n < 30; ++n) {
        pair   a({.delay_us = 300}, behaviour{.agree = 0.6, .delay_us = 300});
        answer some;
        a.line.begin(asked.as(run_mode::async, 6).make());
        read_some(a.line, some, size_t(n));
        a.line.cancel(*a.line.current());
        errand saved{.what = errand::kind::save};
        CHECK_EQ(run(a, saved).finish, finish_reason::stop);
        CHECK(a.target.cached(0) == saved.target.tokens);
        CHECK(a.draft.cached(0) == saved.draft.tokens);
        errand job = given(saved);
        run(a, job);
        a.run(asked.as(run_mode::async, 6));
    }
}

TEST(what_does_not_fit_leaves_empty_caches) {
    pair a({}, behaviour{.agree = 0.7});
    a.run(asked);
    errand bad{.what = errand::kind::restore};
    bad.target         = {.tokens = {1, 2}, .given = std::string_view("1234")};
    const answer found = run(a, bad);
    CHECK_EQ(found.finish, finish_reason::error);
    CHECK_EQ(found.error.sentence, "what was saved does not fit");
    CHECK_EQ(a.run(asked).stats.n_prompt_cached, 0);
    errand bad_draft{.what = errand::kind::restore};
    bad_draft.draft = {.tokens = {1, 2}, .given = std::string_view("1234")};
    CHECK_EQ(run(a, bad_draft).finish, finish_reason::stop);
    a.run(asked.as(run_mode::sync, 3));
}

TEST(scores_are_those_of_the_target) {
    pair   a({.n_batch = 16}, behaviour{.agree = 0.7});
    errand job{.what = errand::kind::score, .n_top = 2};
    CHECK_EQ(run(a, job, asked.prompt).finish, finish_reason::stop);
    REQUIRE_EQ(job.logp.size(), asked.prompt.size() - 1);
    REQUIRE_EQ(job.top.size(), 2 * job.logp.size());
    for (size_t i = 0; i < job.logp.size(); ++i) {
        const auto all =
            a.lang.after(std::vector<token_id>(asked.prompt.begin(), asked.prompt.begin() + ptrdiff_t(i) + 1));
        const auto at =
            std::find_if(all.begin(), all.end(), [&](const auto & c) { return c.token == asked.prompt[i + 1]; });
        CHECK_EQ(job.logp[i], at == all.end() ? -100.0f : at->logp);
        CHECK_EQ(job.top[2 * i].token, all[0].token);
        CHECK_EQ(job.top[2 * i + 1].token, all[1].token);
    }
    CHECK_EQ(a.run(asked).stats.n_prompt_cached, int32_t(asked.prompt.size()) - 1);
    bool refused = false;
    try {
        run(a, job, std::vector<token_id>(100000, 1));
    } catch (const error & e) {
        refused = e.kind() == error_kind::context_full;
    }
    CHECK(refused);
}

TEST(a_score_can_be_cancelled) {
    pair   a({.n_batch = 4, .pass_us = 2000});
    errand job{.what = errand::kind::score};
    auto   r  = std::make_unique<request>();
    r->job    = std::shared_ptr<errand>(std::shared_ptr<void>(), &job); // the test keeps it
    r->prompt = asked.prompt;
    a.line.begin(std::move(r));
    a.line.cancel(*a.line.current());
    CHECK(job.logp.size() < asked.prompt.size() - 1);
    a.run(asked);
}

TEST(a_prompt_can_be_read_ahead) {
    pair a({});
    ask  q      = asked;
    q.n_predict = 0;
    a.run(q);
    CHECK_EQ(a.target.cached(0).size(), q.prompt.size() - 1);
}

// The caller frees each request as soon as both workers are done with it: for ThreadSanitizer and AddressSanitizer.
TEST(errands_follow_each_other_at_once) {
    pair a({}, behaviour{.agree = 0.7});
    a.run(asked.as(run_mode::sync, 3));
    for (int i = 0; i < 3000; ++i) {
        errand look;
        CHECK_EQ(run(a, look).finish, finish_reason::stop);
        CHECK(!look.target.tokens.empty());
    }
}
