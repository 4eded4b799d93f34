// Draft heads that do not know the target's states of a part of the text: after a saved text came back, and where a
// target with a recurrent state cannot go back by a row.
#include <array>

#include "headed.h"

using namespace duo;
using namespace duo_test;

TEST(a_saved_text_has_all_rows_that_can_be_made) {
    for (const run_mode mode : {run_mode::sync, run_mode::async}) {
        for (const int32_t n_predict : {1, 2, 30}) { // of one token the head makes no row while it is written
            for (const int32_t n_levels : {1, 8}) {
                const behaviour b{.n_levels = n_levels, .n_batch = 16};
                dice            d{uint64_t(n_predict)};
                ask             q;
                q.prompt    = some_prompt(d, 70, b.lang.n_vocab);
                q.n_predict = n_predict;
                q           = q.as(mode, 3);
                errand saved{.what = errand::kind::save};
                headed a(b);
                a.line.begin(q.make());
                const answer first = read_all(a.line);
                run_errand(a.line, saved);
                const std::string note = "n_predict " + std::to_string(n_predict);
                CHECK(saved.target.tokens.size() >= q.prompt.size(), note);
                CHECK(saved.draft.tokens == saved.target.tokens, note);

                headed c(b); // has other states of these positions
                c.line.begin(ask{.prompt = some_prompt(d, 75, b.lang.n_vocab)}.as(mode, 3).make());
                read_all(c.line);
                errand job = given(saved);
                run_errand(c.line, job);
                q.prompt.insert(q.prompt.end(), first.tokens.begin(), first.tokens.end());
                q.n_predict          = 30;
                const int64_t n_true = c.head.n_true.load();
                c.line.begin(q.as(run_mode::sync, 3).make());
                const answer a2 = read_all(c.line);
                check_same(a2, reference(b.lang, b.n_ctx, q), note);
                check_all_accepted(a2, 3, note);
                CHECK_EQ(c.head.first_held(0), 1, note);
                CHECK_EQ(c.head.n_bridged.load(), 0, note);
                CHECK(c.head.n_true.load() - n_true <= 40, note);
            }
        }
    }
}

// A state was saved when the head knew less of the text than the target.
TEST(a_short_gap_is_bridged_and_of_a_long_one_its_end) {
    struct gap {
        int32_t n, n_levels, n_bridged, first;
    };
    for (const auto & [n_gap, n_levels, n_bridged, first] :
         {gap{1, 1, 1, 1}, gap{5, 1, 5, 1}, gap{64, 1, 64, 1}, gap{65, 1, 64, 57}, gap{100, 1, 64, 57}, gap{1, 8, 1, 1},
          gap{4, 8, 4, 1}, gap{5, 8, 0, 121}, gap{100, 8, 0, 121}}) {
        const behaviour b{.n_levels = n_levels, .n_batch = 16};
        dice            d{uint64_t(n_gap)};
        ask             q;
        q.prompt    = some_prompt(d, 120, b.lang.n_vocab);
        q.n_predict = 20;
        q           = q.as(run_mode::sync, 3);
        errand before{.what = errand::kind::save, .n_keep = 121 - n_gap}, after{.what = errand::kind::save};
        headed a(b);
        a.line.begin(q.make());
        read_all(a.line);
        run_errand(a.line, before);
        a.line.begin(q.make());
        read_all(a.line);
        after.n_keep = 121;
        run_errand(a.line, after);
        REQUIRE_EQ(before.draft.tokens.size(), size_t(121 - n_gap));

        headed c(b);
        errand job = given(after);
        job.draft  = {.tokens = before.draft.tokens, .given = before.draft.saved};
        run_errand(c.line, job);
        const answer want = reference(b.lang, b.n_ctx, q);
        q.prompt.insert(q.prompt.end(), want.tokens.begin(), want.tokens.begin() + 3);
        c.line.begin(q.make());
        const answer      a2   = read_all(c.line);
        const std::string note = "gap of " + std::to_string(n_gap);
        check_same(a2, reference(b.lang, b.n_ctx, q), note);
        check_all_accepted(a2, 3, note);
        CHECK_EQ(a2.stats.n_prompt_cached, 120, note);
        CHECK_EQ(c.head.n_bridged.load(), n_bridged, note);
        CHECK_EQ(c.head.first_held(0), first, note);
    }
}

// What the target can go back to does not depend on the head.
TEST(a_recurrent_target_goes_back_no_further_than_without_a_head) {
    for (const undo_kind undo : {undo_kind::copy, undo_kind::snapshots}) {
        for (const int32_t n_shared : {60, 61, 90, 104, 105, 119, 120}) {
            const behaviour b{.n_batch = 16, .undo = undo, .marks = true};
            dice            d{uint64_t(n_shared)};
            ask             q;
            q.prompt    = some_prompt(d, 120, b.lang.n_vocab);
            q.n_predict = 20;
            ask next    = q;
            next.prompt.resize(size_t(n_shared));
            const auto more = some_prompt(d, 30, b.lang.n_vocab);
            next.prompt.insert(next.prompt.end(), more.begin(), more.end());
            const auto begun = [](const ask & x) {
                auto r    = x.make();
                r->n_mark = 60;
                return r;
            };
            std::array<int32_t, 2> n_cached{};
            for (const bool guesses : {false, true}) {
                headed            pair(b);
                const std::string note = "shares " + std::to_string(n_shared) + (guesses ? ", head" : "");
                for (const ask & x : {q, next}) {
                    const ask asked = x.as(guesses ? run_mode::sync : run_mode::plain, 3);
                    pair.line.begin(begun(asked));
                    const answer a = read_all(pair.line);
                    check_same(a, reference(b.lang, b.n_ctx, asked), note);
                    n_cached[guesses ? 1 : 0] = a.stats.n_prompt_cached;
                    if (guesses) {
                        check_all_accepted(a, 3, note);
                    }
                }
                CHECK(!guesses || pair.head.first_held(0) == 1, note);
                CHECK(pair.head.n_bridged.load() <= 1, note);
            }
            CHECK(n_cached[0] >= 60, "the text before was marked");
            CHECK_EQ(n_cached[1], n_cached[0], "shares " + std::to_string(n_shared));
        }
    }
}
