// Both models on the same cores, in the real pipeline: the draft begins late, or not at all.
#include "pair.h"

using namespace duo_test;

namespace {

pair_prior shared_prior(double pass_us = 300.0, double step_us = 50.0) {
    pair_prior p{.shared = true, .step_us = step_us};
    p.pass_us = {{1, pass_us}, {4, 1.05 * pass_us}, {16, 1.3 * pass_us}};
    return p;
}

ask with_prompt(int32_t n_prompt, int32_t n_predict) {
    ask q{.n_predict = n_predict};
    q.prompt.resize(size_t(n_prompt));
    for (size_t i = 0; i < q.prompt.size(); ++i) {
        q.prompt[i] = token_id(1 + (7 * i + i / 11) % 39);
    }
    return q.as(run_mode::async);
}

stance stance_of(pair & p) {
    stance now{};
    p.line.with_plans([&now](planner & plans) { now = plans.stance_now(); });
    return now;
}

} // namespace

TEST(shared_cores_any_request) {
    dice d(9);
    for (int i = 0; i < check::n_cases(check::by_scale(20, 40)); ++i) {
        behaviour t{.delay_us = 100, .pass_us = d.chance(0.5) ? 200 : 0};
        t.lang.p_end     = d.chance(0.3) ? 0.02 : 0.0;
        behaviour b      = t;
        b.pass_us        = 0;
        b.agree          = d.chance(0.5) ? 0.9 : 0.2;
        b.delay_us       = d.chance(0.5) ? 50 : 400;
        b.throw_at       = d.chance(0.2) ? d.between(0, 20) : -1;
        pair_prior prior = d.chance(0.7) ? shared_prior(300.0, d.chance(0.8) ? 50.0 : 0.0) : pair_prior{.shared = true};
        if (d.chance(0.5)) {
            prior.split = {.target = 3, .draft = 1};
        }
        scripted_model target(t);
        scripted_model draft(b);
        pipeline       line(&target, &draft, {.prior = prior});
        for (int k = 0; k < 4; ++k) {
            ask            q       = with_prompt(d.between(1, 100), d.between(0, 60));
            const run_mode modes[] = {run_mode::plain, run_mode::sync, run_mode::async, run_mode::async};
            q.plan.mode            = modes[d.between(0, 3)];
            q.plan.n_max           = d.chance(0.7) ? n_draft_auto : d.between(0, 10);
            q.plan.use             = d.chance(0.2) ? tree_use::dynamic : q.plan.use;
            q.plan.n_min           = d.chance(0.2) ? d.between(0, 3) : 0;
            if (d.chance(0.15)) {
                q.plan.tree = {{0}, {1}, {0, 0}};
            }
            line.begin(q.make());
            answer a;
            if (d.chance(0.2) && read_some(line, a, size_t(d.between(1, 10)))) {
                line.cancel(*line.current());
            } else if (a.finish == finish_reason::none) {
                const answer rest = read_all(line);
                check_same(rest, reference(t.lang, t.n_ctx, q), "shared");
                check_stats(rest, q, "shared");
            }
        }
    }
}

// A long prompt's reading does not pay for a short text. That says nothing of the draft, which short prompts need.
TEST(shared_cores_reading_that_does_not_pay_is_not_held_against_the_draft) {
    const behaviour target{.n_ctx = 16384, .pass_us = 2000};
    behaviour       draft = target;
    draft.pass_us         = 400;
    pair      p(target, draft, false, shared_prior(2200.0, 500.0));
    const ask q = with_prompt(3, 40);
    CHECK(p.run(q).stats.n_accepted > 0);
    ask all           = with_prompt(12000, 60);
    all.plan.n_window = n_window_all;
    const auto a      = p.run(all, "long");
    CHECK_EQ(a.stats.n_drafted, 0, "not worth reading");
    CHECK(stance_of(p) == stance::by_turn);
    CHECK(p.run(q, "again").stats.n_accepted > 0);
}

// The limit of most requests is far above the length of their answers. How long those before it were says more.
TEST(shared_cores_reading_is_priced_by_the_length_of_earlier_texts) {
    behaviour target{.n_ctx = 32768, .pass_us = 2000};
    target.lang.p_end = 0.1;
    behaviour draft   = target;
    draft.pass_us     = 400;
    pair p(target, draft, false, shared_prior(2200.0, 500.0));
    for (int32_t i = 0; i < 8; ++i) {
        const auto a = p.run(with_prompt(3 + i, 4000), "short");
        CHECK(a.finish == finish_reason::stop && a.stats.n_predicted < 100, std::to_string(a.stats.n_predicted));
    }
    ask all           = with_prompt(12000, 4000);
    all.plan.n_window = n_window_all;
    const auto a      = p.run(all, "long");
    CHECK_EQ(a.stats.n_drafted, 0, "not worth reading");
    CHECK(a.stats.n_predicted > 4);
}

// A text without guesses, or of no tokens, does not decide how the next one begins.
TEST(shared_cores_requests_without_a_draft_leave_the_stance_alone) {
    const behaviour target{.pass_us = 2000};
    behaviour       draft = target;
    draft.pass_us         = 100;
    pair      p(target, draft, false, shared_prior(2200.0, 200.0));
    const ask q = with_prompt(5, 30);
    for (int i = 0; i < 50 && stance_of(p) != stance::by_turn; ++i) {
        p.run(q); // once, unless a busy machine makes the draft look slow
    }
    REQUIRE(stance_of(p) == stance::by_turn);
    p.run(with_prompt(5, 0), "no tokens");
    ask ngrams            = q;
    ngrams.plan.has_model = false;
    ngrams.plan.ngram     = {.kind = ngram_kind::simple};
    p.run(ngrams, "n-grams");
    const auto a = p.run(q, "again");
    CHECK_EQ(a.stats.n_passes_in[size_t(stance::ahead)], 0);
}

// The target waits for the guesses of a tree that the user gave only where the draft works beside it.
TEST(shared_cores_fixed_trees_are_grown_ahead) {
    const behaviour b{.pass_us = 300};
    pair_prior      prior = shared_prior();
    prior.split           = {.target = 3, .draft = 1};
    pair p(b, b, false, prior);
    ask  q       = with_prompt(5, 30);
    q.plan.tree  = {{0}, {1}, {0, 0}};
    const auto a = p.run(q);
    CHECK_EQ(a.stats.n_passes_in[size_t(stance::by_turn)], 0);
    CHECK(p.draft.n_decoded_with[1] > 0);
    CHECK(p.target.n_decoded_with[3] > 0);
}

// Where n-grams guess as well as the draft does, its steps would only take time.
TEST(shared_cores_a_text_that_repeats_itself_spares_the_draft) {
    behaviour target{.pass_us = 2000};
    target.lang.n_vocab  = 12; // so a period is short
    target.lang.periodic = true;
    behaviour draft      = target;
    draft.pass_us        = 400;
    ask q                = with_prompt(5, 300);
    for (token_id & x : q.prompt) {
        x = 1 + x % 11;
    }
    int64_t n_steps[2];
    for (const bool ngrams : {false, true}) {
        q.plan.ngram = {.kind = ngrams ? ngram_kind::map_k : ngram_kind::none};
        pair       p(target, draft, false, shared_prior(2200.0, 500.0));
        const auto a    = p.run(q, ngrams ? "with n-grams" : "draft alone");
        n_steps[ngrams] = p.draft.n_decoded;
        // Of 300, as a loaded machine leaves.
        CHECK((ngrams ? a.stats.n_ngram_accepted : a.stats.n_accepted) > 60, std::to_string(a.stats.n_accepted));
    }
    CHECK(2 * n_steps[1] < n_steps[0], std::to_string(n_steps[1]) + " of " + std::to_string(n_steps[0]));
}

// Both at once on the same cores would take longer. The draft gives names to the tokens that it is told before it reads
// them, and its first guess comes when it has read.
TEST(shared_cores_a_draft_that_reads_is_waited_for) {
    draft_contact c;
    c.begin({});
    c.set(draft_contact::state::reading);
    CHECK_EQ(c.n_unread(50), 50);
    for (const auto what : {mirror_tree::news::stale, mirror_tree::news::named_right}) {
        c.on_node(what, 50);
        CHECK(c.now() == draft_contact::state::reading && c.drafting());
    }
    c.on_node(mirror_tree::news::grown, 50);
    CHECK(c.now() == draft_contact::state::at_work);
    CHECK_EQ(c.n_unread(53), 3);

    const behaviour target{.n_ctx = 4096, .n_batch = 64, .pass_us = 20000};
    behaviour       draft = target;
    draft.n_batch         = 4096;
    draft.pass_us         = 300000; // longer than the target waits for a single guess
    pair_prior prior{.shared = true, .step_us = 5000.0};
    prior.pass_us = {{1, 20000.0}, {4, 20500.0}, {16, 21000.0}};
    pair p(target, draft, true, prior);
    ask  q          = with_prompt(2300, 60);
    q.plan.n_window = n_window_all;
    p.run(q);
    std::vector<trace_event> of_target, of_draft;
    p.line.take_trace(of_target, of_draft);
    int32_t n_read   = 0;
    int32_t n_beside = 0; // passes that began while the draft read
    for (const auto & d : of_draft) {
        for (const auto & t : of_target) {
            const bool beside = t.what == trace_event::kind::verify && t.t0_us > d.t0_us + 10000 && t.t0_us < d.t1_us;
            n_beside += d.n_rows > 1000 && beside ? 1 : 0;
        }
        n_read += d.n_rows > 1000 ? 1 : 0;
    }
    CHECK_EQ(n_read, 1, "it read the prompt");
    CHECK_EQ(n_beside, 0);
}
