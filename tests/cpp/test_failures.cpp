// Models that throw, cannot roll back, or never return: the text is the target's own, or ends with an error that says
// why.
#include "nan_model.h"
#include "pair.h"

using namespace duo_test;

namespace {

const run_mode modes[] = {run_mode::plain, run_mode::sync, run_mode::async};

// So far, and not counted before.
int n_waits(pipeline & line) {
    std::vector<trace_event> target, draft;
    line.take_trace(target, draft);
    return int(std::count_if(target.begin(), target.end(),
                             [](const trace_event & e) { return e.what == trace_event::kind::wait; }));
}

bool is_prefix(const std::vector<token_id> & part, const std::vector<token_id> & whole) {
    return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

} // namespace

TEST(draft_throws_at_its_nth_call) {
    const ask q{.prompt = {1, 2, 3, 4, 5, 6, 7}, .n_predict = 30};
    for (const bool in_choice : {false, true}) {
        for (const run_mode mode : {run_mode::sync, run_mode::async}) {
            int n_untouched = 0;
            // The draft runs ahead: its last calls are far beyond the length of the text.
            for (int64_t n = 0; n < 8000 && n_untouched < 3;
                 n += n < check::by_scale(15, 40) ? 1 : 1 + n / check::by_scale(4, 7)) {
                const std::string note = "call " + std::to_string(n);
                behaviour         draft{.n_batch = 3, .agree = 0.7};
                (in_choice ? draft.throw_choice : draft.throw_at) = n;
                // An instant target may be done before the draft fails. One that hangs in its first pass is not.
                const bool held = mode == run_mode::async && n <= 5;
                pair       p(behaviour{.pass_us = 100, .hang_at = held ? 0 : -1}, draft);
                p.line.begin(q.as(mode, 4).make());
                if (held) {
                    p.draft.wait_until_thrown();
                    p.target.release();
                }
                const answer a = read_all(p.line);
                check_same(a, reference(p.lang, p.n_ctx, q), note);
                check_stats(a, q.as(mode, 4), note);
                if (a.warning.empty()) {
                    ++n_untouched; // or it failed when nobody listened any more
                } else {
                    CHECK(a.warning.find("fails") != std::string::npos, a.warning);
                }
                CHECK((mode == run_mode::async && n > 5) || n_untouched > 0 || !a.warning.empty(), note);
                // Later texts have their draft again.
                int32_t n_drafted = 0;
                for (int i = 0; i < 1000 && n_drafted == 0; ++i) {
                    const answer b = p.run(q.as(mode, 4), note);
                    CHECK(n_untouched > 0 || b.warning.empty(), b.warning);
                    n_drafted = b.stats.n_drafted;
                }
                CHECK(n_drafted > 0, note);
            }
            CHECK_EQ(n_untouched, 3);
        }
    }
}

TEST(target_throws_at_its_nth_call) {
    const ask q{.prompt = {1, 2, 3, 4, 5, 6, 7}, .n_predict = 25};
    for (const bool in_choice : {false, true}) {
        for (const run_mode mode : modes) {
            for (int64_t n = 0; n < 40; ++n) {
                behaviour target{.n_batch = 3};
                (in_choice ? target.throw_choice : target.throw_at) = n;
                pair         p(target, behaviour{.n_batch = 3, .agree = 0.7});
                const answer want = reference(p.lang, p.n_ctx, q);
                p.line.begin(q.as(mode, 4).make());
                const answer a = read_all(p.line);
                if (a.finish != finish_reason::error) {
                    check_same(a, want, "not reached");
                    break;
                }
                CHECK(a.error.sentence.find("fails") != std::string::npos, a.error.sentence);
                CHECK(a.error.kind == error_kind::context_full, "the model's own kind");
                CHECK(is_prefix(a.tokens, want.tokens));
                // A choice that fails inside a pass leaves that pass's tokens written: they are right.
                CHECK(a.stats.n_predicted == int32_t(a.tokens.size()));
                p.run(q.as(mode, 4), "after a failure");
            }
        }
    }
}

// A text ends where plain decoding ends it: at the bad token, if the target chooses it. A guess never ends a text.
TEST(a_guess_that_computes_nan_spoils_no_text) {
    const int n_seeds = check::by_scale(120, 300);
    int64_t   n_whole = 0, n_ended = 0, n_drafted = 0;
    for (uint64_t seed = 1; seed <= uint64_t(n_seeds); ++seed) {
        dice          d(seed);
        const bool    many = d.chance(0.4);
        language      lang{.seed = seed, .n_vocab = 12, .periodic = d.chance(0.3)};
        behaviour     target{.lang = lang, .is_target = true};
        const int32_t n_texts = many ? 3 : 1;
        target.n_batch        = d.between(8, 24);
        target.undo           = many || d.chance(0.6) ? duo::undo_kind::cells
                                : d.chance(0.5)       ? duo::undo_kind::snapshots
                                                      : duo::undo_kind::copy;
        target.n_branch       = target.undo == duo::undo_kind::cells ? 4 * n_texts : 1;
        const token_id bad    = token_id(d.between(8, lang.n_vocab - 1));
        nan_model      t(target, bad, d.chance(0.5) ? 1.0 : 0.5);
        scripted_model m(behaviour{.lang = lang, .agree = 0.7, .accent = d.next()});
        pipeline       line(&t, &m, {.n_texts = n_texts});
        for (const run_mode mode : modes) {
            std::vector<std::shared_ptr<open_text>> texts;
            std::vector<ask>                        asks;
            for (int32_t i = 0; i < n_texts; ++i) {
                asks.push_back(ask{.prompt = {1, 2, 3, 4, 5, 6, i + 1}, .n_predict = 30}.as(mode, 4));
                texts.push_back(line.begin(asks.back().make()));
            }
            for (int32_t i = 0; i < n_texts; ++i) {
                const std::string note = "seed " + std::to_string(seed) + " mode " + std::to_string(int(mode)) +
                                         " text " + std::to_string(i);
                const answer want = reference(lang, target.n_ctx, asks[size_t(i)]);
                const auto   end  = std::find(want.tokens.begin(), want.tokens.end(), bad);
                answer       a;
                read_some(line, *texts[size_t(i)], a, size_t(-1));
                n_drafted += a.stats.n_drafted;
                if (end == want.tokens.end() || end + 1 == want.tokens.end()) {
                    check_same(a, want, note);
                    ++n_whole;
                    continue;
                }
                CHECK(a.finish == finish_reason::error && a.error.kind == error_kind::bad_value, note);
                CHECK(a.tokens == std::vector<token_id>(want.tokens.begin(), end + 1), note);
                ++n_ended;
            }
        }
    }
    CHECK(n_whole > n_seeds / 6 && n_ended > n_seeds && n_drafted > 3 * n_seeds);
}

TEST(both_throw) {
    const ask q{.n_predict = 25};
    for (int64_t n = 0; n < 15; ++n) {
        pair p(behaviour{.throw_at = n}, behaviour{.throw_at = n / 2});
        p.line.begin(q.as(run_mode::async, 4).make());
        CHECK(is_prefix(read_all(p.line).tokens, reference(p.lang, p.n_ctx, q).tokens));
        p.run(q.as(run_mode::async, 4));
        p.run(q.as(run_mode::sync, 4));
    }
}

TEST(draft_that_cannot_roll_back) {
    pair p(behaviour{.pass_us = 100}, behaviour{.agree = 0.5, .can_rollback = false});
    for (int i = 0; i < 3; ++i) {
        const answer a = p.run(ask{.n_predict = 50}.as(run_mode::async, 4));
        CHECK(a.warning.find("rolled back") != std::string::npos, a.warning);
    }
}

TEST(target_that_cannot_roll_back) {
    pair p(behaviour{.can_rollback = false}, behaviour{.agree = 0.5});
    for (int i = 0; i < 3; ++i) {
        p.run(ask{.n_predict = 50}.as(run_mode::plain), "plain needs no rollback");
        p.line.begin(ask{.n_predict = 50}.as(run_mode::sync, 4).make());
        const answer a = read_all(p.line);
        CHECK_EQ(a.finish, finish_reason::error);
        CHECK(a.error.sentence.find("rolled back") != std::string::npos, a.error.sentence);
        CHECK(a.error.kind == error_kind::bad_value);
        CHECK(is_prefix(a.tokens, reference(p.lang, p.n_ctx, ask{.n_predict = 50}).tokens));
    }
}

TEST(draft_hangs) {
    for (const run_mode mode : {run_mode::sync, run_mode::async}) {
        for (const int32_t n_max : {4, n_draft_auto}) {
            for (const int64_t n : {0, 1, 2, 7}) {
                pair      p(behaviour{}, behaviour{.n_batch = 2, .heeds_stop = false, .hang_at = n}, true);
                const ask q = ask{.n_predict = 100}.as(mode, n_max);
                for (int i = 0; i < 1000 && !p.draft.hanging(); ++i) {
                    p.run(q, "until it hangs"); // an instant target may be done before the draft's nth call
                }
                REQUIRE(p.draft.hanging());
                // One wait in vain is enough to know; later texts pay it once as well.
                n_waits(p.line);
                for (int i = 0; i < 2; ++i) {
                    p.run(q, "hanging");
                    const int n = n_waits(p.line);
                    CHECK(n <= 1, std::to_string(n));
                }
                p.run(q.as(run_mode::plain));
                p.draft.release();
                // It takes up the work again as soon as it has taken the messages.
                const int64_t before    = p.draft.n_decoded.load();
                int32_t       n_drafted = n_max == n_draft_auto ? 1 : 0; // auto may well do without it here
                for (int i = 0; i < 2000 && (n_drafted == 0 || p.draft.n_decoded.load() < before + 5); ++i) {
                    n_drafted += p.run(q).stats.n_drafted;
                }
                CHECK(n_drafted > 0);
                CHECK(p.draft.n_decoded.load() >= before + 5);
            }
        }
    }
}

TEST(late_failure_is_the_old_texts_own) {
    // The draft fails on a text that is over while the next one is under way: that one keeps its draft.
    pair p(behaviour{.pass_us = 300, .hang_at = 0}, behaviour{.heeds_stop = false, .throw_at = 0, .hang_at = 0});
    p.begin_with_hanging_draft(ask{.n_predict = 5}.as(run_mode::async, 4));
    read_all(p.line);
    const ask q = ask{.n_predict = 200}.as(run_mode::async, 4);
    p.line.begin(q.make());
    answer a;
    read_some(p.line, a, 10);
    p.draft.release();
    read_some(p.line, a, size_t(-1));
    check_same(a, reference(p.lang, p.n_ctx, q), "late failure");
    CHECK_EQ(a.warning, std::string());
    CHECK(a.stats.n_drafted > 0);
}

TEST(draft_falls_too_far_behind) {
    // More verdicts than the ring holds: the text goes on without the draft, and the messages owed are sent later.
    pair      p(behaviour{.n_ctx = 12000, .hang_at = 0}, behaviour{.n_ctx = 12000, .heeds_stop = false, .hang_at = 0});
    const ask q = ask{.n_predict = 10000}.as(run_mode::async, 4);
    p.begin_with_hanging_draft(q);
    const answer a = read_all(p.line);
    check_same(a, reference(p.lang, p.n_ctx, q), "far behind");
    CHECK(a.warning.find("behind") != std::string::npos, a.warning);
    for (int i = 0; i < 3; ++i) {
        p.run(ask{.n_predict = 50}.as(run_mode::async, 4), "while it hangs");
    }
    p.draft.release();
    int32_t n_drafted = 0;
    for (int i = 0; i < 2000 && n_drafted == 0; ++i) {
        n_drafted = p.run(ask{.n_predict = 50}.as(run_mode::async, 4), "after").stats.n_drafted;
    }
    CHECK(n_drafted > 0);
}

TEST(cancel_stops_a_long_pass_of_the_target) {
    for (const int64_t n : {0, 1, 5}) {
        pair p(behaviour{.hang_at = n}, behaviour{});
        p.line.begin(ask{}.as(run_mode::async, 4).make());
        p.target.wait_until_hanging();
        p.line.cancel(*p.line.current());
        p.run(ask{}.as(run_mode::async, 4));
    }
}

TEST(target_hangs_and_is_cancelled) {
    for (const int64_t n : {0, 1, 5}) {
        pair p(behaviour{.heeds_stop = false, .hang_at = n}, behaviour{});
        p.line.begin(ask{}.as(run_mode::async, 4).make());
        std::thread later([&] {
            p.target.wait_until_hanging();
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
            p.target.release();
        });
        p.target.wait_until_hanging();
        p.line.cancel(*p.line.current());
        later.join();
        p.run(ask{}.as(run_mode::async, 4));
    }
}
