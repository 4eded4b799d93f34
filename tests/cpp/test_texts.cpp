// Several texts at once: they join, leave, are cancelled, fail and fill the cache, in random schedules. Each has the
// tokens that it has alone.
#include <thread>

#include "text_reader.h"

using namespace duo_test;

namespace {

// After all texts: the models hold what the workers know of, and nothing else.
void check_usage(pipeline & line, size_t n_texts, const std::string & note) {
    errand look;
    CHECK_EQ(run_errand(line, look).finish, finish_reason::stop, note);
    const engine_usage u = line.usage();
    REQUIRE_EQ(u.target.cells.size(), n_texts, note);
    CHECK_EQ(u.target.n_active + u.target.n_parked + u.draft.n_active, 0, note);
    CHECK_EQ(u.n_open + u.n_queued + u.n_unfreed, 0, note);
    const size_t n_branches = look.target.held.size() / n_texts; // of a slot
    for (size_t b = 0; b < look.target.held.size(); ++b) {
        const bool is_first = b % n_branches == 0 && b / n_branches < n_texts;
        CHECK_EQ(look.target.held[b], is_first ? u.target.cells[b / n_branches] : 0, note);
    }
    const auto known = std::accumulate(u.draft.cells.begin(), u.draft.cells.end(), 0);
    CHECK(std::count_if(look.draft.held.begin(), look.draft.held.end(), [](int32_t n) { return n > 0; }) <=
              u.draft.n_branches,
          note);
    // Branches share cells, so the largest of a text's branches is all that it has at least.
    for (const int32_t n : look.draft.held) {
        CHECK(n <= known, note);
    }
}

reader random_reader(dice & d, const language & lang, int32_t n_ctx, const std::string & note, const reader * before) {
    reader r;
    r.q      = random_ask(d, lang, n_ctx);
    r.note   = note;
    r.n_read = d.chance(0.2) ? d.below(10) : size_t(-1);
    if (n_ctx < 50 && !r.q.shift.on && d.chance(0.7)) { // to the context's end
        r.q.n_predict = -1;
        r.q.stop.clear();
    }
    if (before != nullptr && d.chance(0.4)) { // caches are used again
        r.q.prompt     = before->q.prompt;
        r.q.draft_sees = before->q.draft_sees;
        cut_prompt(r.q, size_t(d.between(1, int32_t(r.q.prompt.size()))));
    }
    if (n_ctx > 100 && d.chance(0.3)) {
        r.q.draft_sees = d.chance(0.5);
        put_pictures(r.q, d);
    }
    if (d.chance(0.2)) { // it shares no pass with texts of other scales
        r.q.scales = {d.chance(0.5) ? 0.5f : 1.0f};
    }
    if (d.chance(0.2)) {
        r.hook                                               = std::make_shared<scripted_hook>();
        const size_t n                                       = r.q.prompt.size() + d.below(12);
        (d.chance(0.5) ? r.hook->stop_at : r.hook->throw_at) = d.chance(0.7) ? n : 0;
    }
    return r;
}

// Some texts, each from a thread of its own, through one pipeline with 1 to 8 slots.
void one_schedule(uint64_t seed, total & sum, bool failures) {
    dice           d(seed);
    const language lang{.seed = d.next(), .p_end = d.chance(0.3) ? 0.05 : 0.0};
    const auto     n_texts = d.between(1, 8);
    behaviour      target{.lang = lang, .n_ctx = d.chance(0.3) ? 40 : 160, .n_batch = d.chance(0.2) ? 24 : 128};
    target.n_branch   = n_texts * d.between(1, 6);
    target.n_spare    = d.chance(target.n_ctx < 50 ? 0.8 : 0.5) ? 64 : 600; // 64 is too small for all, and texts wait
    target.delay_us   = d.chance(0.5) ? 60 : 0;
    target.delay_seed = d.next();
    behaviour draft   = target;
    if (d.chance(0.4)) {
        target.is_target  = true;
        target.undo       = d.chance(0.6) ? undo_kind::snapshots : undo_kind::copy;
        target.n_branch   = n_texts;
        target.n_together = d.between(-1, 4);
        target.n_undo     = d.between(std::max(1, target.n_together), 8);
        target.drops_one  = target.undo == undo_kind::copy && d.chance(0.3);
    }
    draft.agree      = d.chance(0.5) ? 0.9 : 0.5;
    draft.n_branch   = n_texts * d.between(2, 8);
    draft.accent     = d.next();
    draft.delay_us   = d.chance(0.5) ? 30 : 0;
    draft.delay_seed = d.next();
    if (failures) {
        (d.chance(0.5) ? target.throw_at : target.throw_choice) = d.chance(0.7) ? d.between(0, 60) : -1;
        (d.chance(0.5) ? draft.throw_at : draft.throw_choice)   = d.chance(0.7) ? d.between(0, 100) : -1;
    }
    target.sinks = false;
    scripted_model t(target);
    scripted_model m(draft);
    pair_prior     prior;
    prior.shared = d.chance(0.5);
    if (d.chance(0.7)) { // rows that cost nothing, or too much: by turn, ahead, or at rest
        prior.pass_us = {{1, 1000.0}, {64, d.chance(0.7) ? 1000.0 : 1e6}};
        prior.step_us = 10.0;
    }
    pipeline            line(&t, d.chance(0.9) ? &m : nullptr, {.n_texts = n_texts, .prior = prior});
    std::vector<reader> readers(size_t(d.between(2, 10)));
    for (size_t i = 0; i < readers.size(); ++i) {
        const std::string note = "seed " + std::to_string(seed) + " text " + std::to_string(i);
        readers[i]             = random_reader(d, lang, target.n_ctx, note, i == 0 ? nullptr : &readers[i - 1]);
    }
    std::vector<std::thread> threads;
    for (reader & r : readers) {
        const bool     late  = d.chance(0.5);
        const bool     slow  = d.chance(0.2);
        const uint64_t start = d.next();
        threads.emplace_back([&line, &r, late, slow, start] {
            if (late) {
                loiter(start, 400);
            }
            r.run(line, slow, dice(start));
        });
    }
    for (std::thread & x : threads) {
        x.join();
    }
    for (const reader & r : readers) {
        r.check(lang, target.n_ctx, !failures, sum);
    }
    CHECK(!line.running());
    check_usage(line, size_t(n_texts), "seed " + std::to_string(seed));
}

total many_schedules(int n, bool failures) {
    total sum;
    for (int seed = 0; seed < n && check::n_failed.load() <= 10; ++seed) {
        one_schedule(uint64_t(seed), sum, failures);
    }
    return sum;
}

} // namespace

TEST(random_schedules_of_several_texts) {
    const int   n   = check::n_cases(check::by_scale(160, 400));
    const total sum = many_schedules(n, false);
    for (const int x : {sum.n_cancelled, sum.n_accepted, sum.n_rejected}) {
        CHECK(x > n / 3, std::to_string(x));
    }
    CHECK(n < 100 || sum.n_parked > 0, std::to_string(sum.n_parked));
    for (const int x : {sum.n_full, sum.n_hooks_failed, sum.n_hooks_stopped}) {
        CHECK(x > n / 20, std::to_string(x));
    }
    CHECK_EQ(sum.n_errors, 0);
}

TEST(a_failure_ends_the_texts_that_it_meets_and_no_others) {
    const int   n   = check::n_cases(check::by_scale(160, 400));
    const total sum = many_schedules(n, true);
    CHECK(sum.n_errors > n / 8 && sum.n_errors < sum.n_texts / 4, std::to_string(sum.n_errors));
}

// A pass over several texts fails as a whole, whoever is to blame.
TEST(a_text_that_cannot_be_evaluated_ends_alone) {
    total sum;
    for (uint64_t seed = 0; seed < 40; ++seed) {
        const language           lang{.seed = seed};
        scripted_model           t(behaviour{.lang = lang, .n_branch = 8, .delay_us = 20, .poison = 3});
        scripted_model           m(behaviour{.lang = lang, .n_branch = 16, .agree = 0.8});
        pipeline                 line(&t, &m, {.n_texts = 4});
        std::vector<reader>      readers(4);
        std::vector<std::thread> threads;
        for (size_t i = 0; i < readers.size(); ++i) {
            readers[i].q = ask{.prompt = {token_id(i == 2 ? 3 : 4), token_id(i), 1}, .n_predict = 30};
            threads.emplace_back([&, i] {
                loiter(seed + i, 200);
                readers[i].run(line, false, dice(1));
            });
        }
        for (std::thread & x : threads) {
            x.join();
        }
        for (const reader & r : readers) {
            r.check(lang, 512, false, sum);
        }
        CHECK(readers[2].a.finish == finish_reason::error);
    }
    CHECK_EQ(sum.n_errors, 40);
}

TEST(a_choice_that_fails_ends_one_text) {
    const language           lang{.seed = 5};
    scripted_model           t(behaviour{.lang = lang, .n_branch = 4, .throw_choice = 20});
    pipeline                 line(&t, nullptr, {.n_texts = 4});
    std::vector<reader>      readers(4);
    std::vector<std::thread> threads;
    for (reader & r : readers) {
        r.q = ask{.n_predict = 30};
        threads.emplace_back([&] { r.run(line, false, dice(1)); });
    }
    for (std::thread & x : threads) {
        x.join();
    }
    total sum;
    for (const reader & r : readers) {
        r.check(lang, 512, false, sum);
    }
    CHECK_EQ(sum.n_errors, 1);
}

// One thread reads all texts, beside others that read their own.
TEST(a_thread_that_waits_for_news_reads_all_texts) {
    const language                          lang{.seed = 7};
    scripted_model                          t(behaviour{.lang = lang, .n_branch = 4, .delay_us = 200, .delay_seed = 1});
    pipeline                                line(&t, nullptr, {.n_texts = 4});
    const ask                               q{.n_predict = 60};
    std::vector<std::shared_ptr<open_text>> texts;
    std::vector<answer>                     answers(7);
    for (int i = 0; i < 6; ++i) {
        texts.push_back(line.begin(q.make()));
    }
    reader own;
    own.q = q;
    std::thread beside([&] { own.run(line, true, dice(2)); });
    line.cancel(*texts[5]);

    uint64_t seen   = 0;
    size_t   n_open = 5;
    while (n_open > 0) {
        seen   = line.wait_news(seen, now_us() + 50000);
        n_open = 0;
        for (size_t i = 0; i < 5; ++i) {
            for (text_chunk c; line.next(*texts[i], c, 0);) {
                answers[i].finish = c.finish;
                if (c.finish == finish_reason::none) {
                    answers[i].tokens.push_back(c.token);
                }
            }
            n_open += answers[i].finish == finish_reason::none ? 1 : 0;
        }
    }
    beside.join();
    const answer want = reference(lang, 512, q);
    for (size_t i = 0; i < 5; ++i) {
        CHECK(answers[i].tokens == want.tokens, std::to_string(i));
    }
    total sum;
    own.check(lang, 512, true, sum);
    const uint64_t last = line.wait_news(0, now_us());
    CHECK_EQ(line.wait_news(last, now_us() + 1000), last); // nothing more comes
}
