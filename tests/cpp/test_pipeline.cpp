// The whole pipeline: the text is the target's, whatever the draft, the mode and the limits.
#include "pair.h"

using namespace duo_test;

namespace {

const run_mode modes[] = {run_mode::plain, run_mode::sync, run_mode::async};

std::string name(run_mode mode) {
    return mode == run_mode::plain ? "plain" : mode == run_mode::sync ? "sync" : "async";
}

// All modes and draft lengths, in one pipeline one after another.
void run_all(const behaviour & target, const behaviour & draft, const ask & q, const std::string & note) {
    pair p(target, draft);
    for (const run_mode mode : modes) {
        for (const int32_t n : {1, 4, 16, n_draft_auto}) {
            p.run(q.as(mode, n), note + " " + name(mode) + " " + std::to_string(n));
        }
    }
}

} // namespace

TEST(text_is_the_targets) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
        for (const double agree : {0.0, 0.3, 0.7, 1.0}) {
            const language  lang{.seed = seed};
            const behaviour target{.lang = lang};
            const behaviour draft{.lang = lang, .agree = agree, .accent = seed};
            ask             q{.n_predict = 120};
            run_all(target, draft, q, "greedy, agree " + std::to_string(agree));
            q.sampling = {.temp = 0.8f, .presence_penalty = 0.5f, .repeat_last_n = 4, .seed = seed};
            run_all(target, draft, q, "sampled, agree " + std::to_string(agree));
        }
    }
}

TEST(while_the_draft_works_the_target_may_fetch_what_it_will_read) {
    pair p(behaviour{.pass_us = 1000}, behaviour{.pass_us = 200});
    p.run(ask{.n_predict = 40}.as(run_mode::sync, 4), "slow");
    CHECK(p.target.n_foreseen > 0);
}

TEST(perfect_draft_is_accepted) {
    pair p(behaviour{.pass_us = 100}, behaviour{.pass_us = 20});
    for (const run_mode mode : {run_mode::sync, run_mode::async}) {
        const answer a = p.run(ask{.n_predict = 200}.as(mode, 4), name(mode));
        CHECK(a.stats.n_drafted > 60, name(mode) + " " + std::to_string(a.stats.n_drafted));
        if (mode == run_mode::sync) {
            CHECK(a.stats.n_passes < 80, std::to_string(a.stats.n_passes));
        }
        // Only a context limit can reject a perfect guess.
        CHECK_EQ(a.stats.n_accepted_at, a.stats.n_tested_at, name(mode));
    }
}

TEST(useless_draft_is_rejected) {
    const behaviour b{};
    pair            p(b, behaviour{.agree = 0.0});
    for (const run_mode mode : {run_mode::sync, run_mode::async}) {
        const answer a = p.run(ask{.n_predict = 200}.as(mode, 4), name(mode));
        CHECK_EQ(a.stats.n_accepted, 0);
        CHECK_EQ(a.stats.n_passes, 200);
        CHECK_EQ(a.stats.n_hits, 0);
    }
}

TEST(draft_that_becomes_useful_is_noticed) {
    // While nothing is verified, the guesses that were there still tell how good the draft is. Whether it then pays
    // depends on the machine; test_planner.cpp asks that in simulated time.
    pair       p(behaviour{.n_ctx = 1200, .n_branch = 4, .pass_us = 1000},
                 behaviour{.n_ctx = 1200, .n_branch = 4, .dull_until = 200});
    const auto acceptance = [&p] {
        double a = 0.0;
        p.line.with_plans([&a](planner & x) { a = x.profile().guesses(guess_kind::greedy).acceptance(0); });
        return a;
    };
    for (int i = 0; i < 20 && acceptance() > 0.4; ++i) {
        const answer dull = p.run(ask{.n_predict = 150}.as(run_mode::async));
        CHECK(dull.stats.n_verifications < 100, std::to_string(dull.stats.n_verifications));
    }
    REQUIRE(acceptance() <= 0.4, std::to_string(acceptance()));
    for (int i = 0; i < 20 && acceptance() < 0.7; ++i) {
        p.run(ask{.n_predict = 1000}.as(run_mode::async));
    }
    CHECK(acceptance() >= 0.7, std::to_string(acceptance()));
}

TEST(small_contexts_and_batches) {
    for (uint64_t seed = 0; seed < 6; ++seed) {
        dice           d(seed);
        const language lang{.seed = seed};
        for (const int32_t n_batch : {1, 2, 5, 70, 100}) {
            behaviour target{.lang = lang, .n_ctx = 200, .n_batch = n_batch};
            behaviour draft{.lang = lang, .n_ctx = d.between(3, 220), .n_batch = d.between(1, 80), .agree = 0.8};
            ask       q{.n_predict = 300}; // the context ends it
            q.prompt.assign(size_t(d.between(1, 150)), 1);
            for (token_id & t : q.prompt) {
                t = token_id(d.below(uint32_t(lang.n_vocab)));
            }
            run_all(target, draft, q, "batch " + std::to_string(n_batch) + " seed " + std::to_string(seed));
        }
    }
}

TEST(prompt_fills_the_context) {
    const behaviour b{.n_ctx = 32, .n_batch = 8};
    pair            p(b, b);
    for (const size_t n : {30u, 31u}) {
        ask q{.n_predict = -1};
        q.prompt.assign(n, 5);
        for (const run_mode mode : modes) {
            CHECK_EQ(p.run(q.as(mode, 4)).tokens.size(), 32 - n);
        }
    }
}

TEST(limits_on_length) {
    for (const int32_t n : {0, 1, 2, 3, 17}) {
        const behaviour b{};
        pair            p(b, b);
        for (const run_mode mode : modes) {
            CHECK_EQ(p.run(ask{.n_predict = n}.as(mode, 8), name(mode)).tokens.size(), size_t(n));
        }
    }
}

TEST(p_min_and_n_min) {
    const language lang{.seed = 5};
    pair           p(behaviour{.lang = lang}, behaviour{.lang = lang, .agree = 0.7});
    for (const run_mode mode : {run_mode::sync, run_mode::async}) {
        ask q        = ask{.n_predict = 150}.as(mode, 6);
        q.plan.p_min = 0.99f; // every guess is below: nothing to verify
        CHECK_EQ(p.run(q, "p_min").stats.n_drafted, 0);
        q.plan.p_min = 0.9f;
        p.run(q, "p_min");
        q.plan.p_min = 0.0f;
        for (const int32_t n_min : {1, 3, 6, 9}) {
            q.plan.n_min   = n_min;
            const answer a = p.run(q, "n_min"); // check_stats: none narrower
            CHECK(n_min < 9 || a.stats.n_drafted == 0);
        }
        q.plan.n_min = 0;
    }
}

TEST(trees_and_ngrams) {
    const language lang{.seed = 4, .periodic = true};
    int            n_beside = 0, n_side = 0, n_ngram = 0;
    for (const int32_t n_branch : {1, 2, 16}) {
        pair p(behaviour{.lang = lang, .n_branch = n_branch, .n_spare = 0},
               behaviour{.lang = lang, .n_branch = n_branch, .second = 0.7, .agree = 0.6});
        for (const run_mode mode : modes) {
            for (const tree_use use : {tree_use::automatic, tree_use::chain, tree_use::dynamic}) {
                for (const bool has_model : {true, false}) {
                    ask q            = ask{.n_predict = 200}.as(mode, 8);
                    q.plan.use       = use;
                    q.plan.has_model = has_model;
                    if (!has_model || use != tree_use::dynamic) {
                        const auto kind = n_branch == 2 ? ngram_kind::mod : ngram_kind::map_k4v;
                        q.plan.ngram    = {.kind = kind, .size_n = 3, .size_m = 6};
                    }
                    const answer a = p.run(q, name(mode) + " branches " + std::to_string(n_branch));
                    n_beside += a.stats.n_drafted - a.stats.n_path;
                    n_side += a.stats.n_side;
                    n_ngram += a.stats.n_ngram_accepted;
                    CHECK(n_branch > 1 || a.stats.n_path == a.stats.n_drafted);
                }
            }
        }
    }
    CHECK(n_beside > 100 && n_side > 10 && n_ngram > 10,
          std::to_string(n_beside) + " " + std::to_string(n_side) + " " + std::to_string(n_ngram));
}

TEST(shapes_are_verified_whole) {
    const language lang{.seed = 6};
    pair p(behaviour{.lang = lang, .n_ctx = 2000}, behaviour{.lang = lang, .n_ctx = 2000, .second = 0.8, .agree = 0.5});
    for (const run_mode mode : {run_mode::sync, run_mode::async}) {
        ask q          = ask{.n_predict = 300}.as(mode);
        q.plan.tree    = {{0, 0, 0}, {1, 0}, {2}, {0, 1}};
        const answer a = p.run(q, name(mode));
        if (mode == run_mode::sync) { // async waits for no draft that the machine lets sleep
            CHECK(a.stats.n_side > 20, std::to_string(a.stats.n_side));
            // But for the passes at either end.
            CHECK(a.stats.n_drafted > 7 * (a.stats.n_passes - 6), std::to_string(a.stats.n_drafted));
        }
        for (size_t i = 3; i < a.stats.n_tested_at.size(); ++i) {
            CHECK_EQ(a.stats.n_tested_at[i], 0);
        }
    }
}

// A draft that has no branch left for what it would expand next stands still; it does not try again and again.
TEST(draft_without_a_free_branch_rests) {
    const language lang{.seed = 6};
    for (const int32_t n_branch : {1, 2, 3}) {
        pair p(behaviour{.lang = lang}, behaviour{.lang = lang, .n_branch = n_branch, .second = 0.8, .agree = 0.5});
        for (const run_mode mode : {run_mode::sync, run_mode::async}) {
            ask q              = ask{.n_predict = 12}.as(mode);
            q.plan.tree        = {{0, 0, 0}, {1, 0, 0}, {2, 0}, {0, 1, 0}};
            const int64_t   n0 = p.draft.n_decoded.load();
            const answer    a  = p.run(q, name(mode));
            const int64_t   n  = p.draft.n_decoded.load() - n0;
            const request * r  = &p.line.current()->req();
            CHECK(r->draft->n_steps.load() <= n, name(mode) + " " + std::to_string(n_branch) +
                                                     " branches: " + std::to_string(r->draft->n_steps.load()) +
                                                     " steps, of which " + std::to_string(n) + " evaluated something");
        }
    }
}

TEST(kv_prefix_is_reused) {
    const language  lang{.seed = 8};
    const behaviour b{.lang = lang, .n_batch = 16};
    for (const run_mode mode : modes) {
        pair p(b, behaviour{.lang = lang, .n_batch = 16, .agree = 0.6});
        ask  q = ask{.n_predict = 20}.as(mode, 4);
        q.prompt.assign(40, 2);
        const answer first = p.run(q);
        CHECK_EQ(first.stats.n_prompt_cached, 0);

        // The same again: all but the last token is there.
        CHECK_EQ(p.run(q).stats.n_prompt_cached, 39);

        // A conversation: prompt, answer, and more.
        q.prompt.insert(q.prompt.end(), first.tokens.begin(), first.tokens.end());
        q.prompt.push_back(7);
        CHECK(p.run(q).stats.n_prompt_cached >= 58);

        // Another beginning: nothing is.
        q.prompt.front() = 9;
        CHECK_EQ(p.run(q).stats.n_prompt_cached, 0);
        q.prompt.resize(10);
        CHECK_EQ(p.run(q).stats.n_prompt_cached, 9);
    }
}

TEST(draft_with_a_smaller_vocabulary) {
    // The text is the target's; the draft fails or pauses at a token it cannot read.
    const language lang{.seed = 3, .n_vocab = 40};
    behaviour      draft{.lang = lang};
    draft.lang.n_vocab = 30;
    run_all(behaviour{.lang = lang}, draft, ask{.n_predict = 100}, "small vocabulary");
}

TEST(trace_is_complete) {
    const behaviour b{.pass_us = 200};
    pair            p(b, behaviour{.agree = 0.8, .pass_us = 20}, true);
    const answer    a = p.run(ask{.n_predict = 60}.as(run_mode::async, 4));

    std::vector<trace_event> target;
    std::vector<trace_event> draft;
    p.line.take_trace(target, draft);
    int32_t n_passes = 0, n_drafted = 0, n_accepted = 0, n_hits = 0;
    int64_t t_us = 0;
    for (const trace_event & e : target) {
        CHECK(e.t0_us >= t_us && e.t1_us >= e.t0_us);
        t_us = e.t1_us;
        if (e.what == trace_event::kind::verify) {
            ++n_passes;
            n_drafted += e.n_drafted;
            n_accepted += e.n_accepted;
            n_hits += e.hit ? 1 : 0;
        }
    }
    CHECK_EQ(n_passes, a.stats.n_passes);
    CHECK_EQ(n_drafted, a.stats.n_drafted);
    CHECK_EQ(n_accepted, a.stats.n_accepted);
    CHECK_EQ(n_hits, a.stats.n_hits);
    CHECK(!draft.empty());
}

TEST(cores_are_split_while_both_work) {
    const behaviour b{.pass_us = 300};
    pair            p(b, b, false, {.split = {.target = 3, .draft = 2}});
    p.run(ask{.n_predict = 60}.as(run_mode::async, 4));
    // But for the prompt, and a draft's work that nobody waits for.
    CHECK(p.target.n_decoded_with[3] + 2 >= p.target.n_decoded, std::to_string(p.target.n_decoded_with[3]));
    CHECK_EQ(int64_t(p.draft.n_decoded_with[2]), int64_t(p.draft.n_decoded));
    // By turn whoever works has them all.
    const int64_t before = p.target.n_decoded;
    p.run(ask{.n_predict = 60}.as(run_mode::sync, 4));
    CHECK_EQ(int64_t(p.target.n_decoded_with[0]) + p.target.n_decoded_with[3], int64_t(p.target.n_decoded));
    CHECK(p.target.n_decoded_with[3] <= before);
    CHECK(p.draft.n_decoded_with[0] > 0);
}
