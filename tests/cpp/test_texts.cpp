// Several texts at once: they join, leave, are cancelled, fail and fill the cache, in random schedules. Each has the
// tokens that it has alone.
#include <thread>

#include "asks.h"

using namespace duo_test;

namespace {

struct total {
    int n_texts = 0, n_cancelled = 0, n_accepted = 0, n_rejected = 0, n_together = 0, n_errors = 0;
};

// One reader: its text is begun, read, perhaps cancelled.
struct reader {
    ask                        q;
    std::string                note;
    size_t                     n_read = size_t(-1); // tokens, then it is cancelled
    answer                     a;
    std::shared_ptr<open_text> text;

    void run(pipeline & line, bool slow, dice d) {
        text = line.begin(q.make());
        while (a.tokens.size() < n_read && read_some(line, *text, a, a.tokens.size() + 1)) {
            if (slow) {
                loiter(d.next(), 100);
            }
        }
        if (a.finish == finish_reason::none) {
            line.cancel(*text);
        }
    }

    void check(const language & lang, int32_t n_ctx, total & sum) const {
        ++sum.n_texts;
        if (a.finish == finish_reason::error) {
            const answer want = reference(lang, n_ctx, q);
            CHECK(a.error.sentence.find("fails") != std::string::npos, note + a.error.sentence);
            CHECK(a.tokens.size() <= want.tokens.size() &&
                      std::equal(a.tokens.begin(), a.tokens.end(), want.tokens.begin()),
                  note);
            ++sum.n_errors;
            return;
        }
        const answer want = reference(lang, n_ctx, q);
        if (a.finish == finish_reason::none) {
            CHECK(a.tokens.size() <= want.tokens.size() &&
                      std::equal(a.tokens.begin(), a.tokens.end(), want.tokens.begin()),
                  note);
            ++sum.n_cancelled;
            return;
        }
        check_same(a, want, note);
        check_stats(a, q, note);
        sum.n_accepted += a.stats.n_accepted;
        sum.n_rejected += a.stats.n_drafted - a.stats.n_accepted;
    }
};

// n texts, each from a thread of its own, through one pipeline with some slots.
void one_pipeline(uint64_t seed, total & sum, bool failures) {
    dice           d(seed);
    const language lang{.seed = d.next(), .p_end = d.chance(0.3) ? 0.05 : 0.0};
    const auto     n_texts = d.between(1, 8);
    behaviour      target{.lang = lang, .n_ctx = d.chance(0.3) ? 40 : 160, .n_batch = d.chance(0.2) ? 24 : 128};
    target.n_branch   = n_texts * d.between(1, 6);
    target.n_spare    = d.chance(0.5) ? 64 : 600; // the first is too small for all, and texts have to wait
    target.delay_us   = d.chance(0.5) ? 60 : 0;
    target.delay_seed = d.next();
    behaviour draft   = target;
    draft.agree       = d.chance(0.5) ? 0.9 : 0.5;
    draft.n_branch    = n_texts * d.between(2, 8);
    draft.accent      = d.next();
    draft.delay_us    = d.chance(0.5) ? 30 : 0;
    draft.delay_seed  = d.next();

    if (failures) {
        (d.chance(0.5) ? target.throw_at : target.throw_choice) = d.chance(0.7) ? d.between(0, 60) : -1;
        (d.chance(0.5) ? draft.throw_at : draft.throw_choice)   = d.chance(0.7) ? d.between(0, 100) : -1;
    }
    scripted_model t(target);
    scripted_model m(draft);
    pair_prior     prior;
    prior.shared = d.chance(0.5);
    pipeline            line(&t, d.chance(0.9) ? &m : nullptr, {.n_texts = n_texts, .prior = prior});
    std::vector<reader> readers(size_t(d.between(2, 10)));
    for (size_t i = 0; i < readers.size(); ++i) {
        reader & r = readers[i];
        r.q        = random_ask(d, lang, target.n_ctx);
        r.note     = "seed " + std::to_string(seed) + " text " + std::to_string(i);
        r.n_read   = d.chance(0.2) ? d.below(10) : size_t(-1);
        if (i > 0 && d.chance(0.4)) { // caches are used again
            r.q.prompt = readers[i - 1].q.prompt;
            r.q.prompt.resize(size_t(d.between(1, int32_t(r.q.prompt.size()))));
        }
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
        r.check(lang, target.n_ctx, sum);
    }
    CHECK(!line.running());
}

} // namespace

TEST(random_schedules_of_several_texts) {
    total sum;
    for (uint64_t seed = 0; sum.n_texts < 4000; ++seed) {
        one_pipeline(seed, sum, false);
        if (check::n_failed.load() > 10) {
            return;
        }
    }
    for (const int n : {sum.n_cancelled, sum.n_accepted, sum.n_rejected}) {
        CHECK(n > 200, std::to_string(n));
    }
}

TEST(a_failure_ends_the_texts_that_it_meets_and_no_others) {
    total sum;
    for (uint64_t seed = 0; sum.n_texts < 2000; ++seed) {
        one_pipeline(seed, sum, true);
        if (check::n_failed.load() > 10) {
            return;
        }
    }
    CHECK(sum.n_errors > 50 && sum.n_errors < sum.n_texts / 4, std::to_string(sum.n_errors));
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
        r.check(lang, 512, sum);
    }
    CHECK_EQ(sum.n_errors, 1);
}

TEST(more_texts_than_slots_wait_in_the_order_of_their_begin) {
    const language                          lang{.seed = 6};
    scripted_model                          t(behaviour{.lang = lang, .n_branch = 2});
    pipeline                                line(&t, nullptr, {.n_texts = 2});
    std::vector<std::shared_ptr<open_text>> texts;
    for (int i = 0; i < 6; ++i) {
        texts.push_back(line.begin(ask{.n_predict = 40}.make()));
    }
    CHECK(line.n_queued() >= 3);
    line.cancel(*texts[4]); // while it waits
    std::vector<answer> answers(6);
    for (size_t i = 6; i-- > 0;) { // whoever reads, all texts go on
        if (i != 4) {
            read_some(line, *texts[i], answers[i], size_t(-1));
            check_same(answers[i], reference(lang, 512, ask{.n_predict = 40}), std::to_string(i));
        }
    }
    for (size_t i = 2; i < 6; ++i) {
        CHECK(i == 4 || answers[i].stats.t_begin_us >= answers[i - 2].stats.t_begin_us);
    }
    CHECK(!line.running());
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
    own.check(lang, 512, sum);
    const uint64_t last = line.wait_news(0, now_us());
    CHECK_EQ(line.wait_news(last, now_us() + 1000), last); // nothing more comes
}

TEST(a_text_may_choose_its_place_and_leave_the_cache_unused) {
    const language lang{.seed = 8};
    scripted_model t(behaviour{.lang = lang, .n_branch = 4});
    pipeline       line(&t, nullptr, {.n_texts = 4});
    for (const int32_t wanted : {2, 0, 3, -1, 9}) {
        for (const bool use_cache : {true, false}) {
            auto req        = ask{.n_predict = 8}.make();
            req->wanted     = wanted;
            req->use_cache  = use_cache;
            const auto text = line.begin(std::move(req));
            answer     a;
            read_some(line, *text, a, size_t(-1));
            check_same(a, reference(lang, 512, ask{.n_predict = 8}), std::to_string(wanted));
            const int32_t place = text->req().place.load();
            CHECK(wanted >= 0 && wanted < 4 ? place == wanted : place >= 0 && place < 4, std::to_string(place));
            CHECK(use_cache || a.stats.n_prompt_cached == 0);
        }
    }
}
