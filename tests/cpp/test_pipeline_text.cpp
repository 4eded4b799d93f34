// What becomes of the tokens: stop strings, end of generation, log-probabilities, bytes that are not whole characters.
#include "pair.h"

using namespace duo_test;

namespace {

const run_mode modes[] = {run_mode::plain, run_mode::sync, run_mode::async};

} // namespace

TEST(stop_strings_end_the_text) {
    int n_stopped = 0;
    for (uint64_t seed = 0; seed < 60; ++seed) {
        const language lang{.seed = seed};
        dice           d(seed);
        pair           p(behaviour{.lang = lang}, behaviour{.lang = lang, .agree = 0.8});
        ask            q{.n_predict = 100};
        for (uint32_t n = 1 + d.below(3); n > 0; --n) {
            static const char * const stops[] = {"aba",
                                                 "bb",
                                                 "c a",
                                                 "abab",
                                                 " a a",
                                                 "\x82\xac",
                                                 ("\xac"
                                                  "a"),
                                                 "cc",
                                                 "a",
                                                 "zzz"};
            q.stop.emplace_back(stops[d.below(10)]);
        }
        for (const run_mode mode : modes) {
            n_stopped += p.run(q.as(mode, 6), "seed " + std::to_string(seed)).finish == finish_reason::stop ? 1 : 0;
        }
    }
    CHECK(n_stopped > 60);
}

TEST(stop_string_inside_accepted_tokens) {
    // All guesses are right and wide, so the stop string lies in the middle of a verification.
    int n_inside = 0;
    for (uint64_t seed = 0; seed < 40; ++seed) {
        const language lang{.seed = seed};
        pair           p(behaviour{.lang = lang, .pass_us = 200}, behaviour{.lang = lang});
        const answer   a = p.run(ask{.n_predict = 100, .stop = {"aba", "cb"}}.as(run_mode::async, 8));
        n_inside += a.finish == finish_reason::stop && a.from_draft.back() ? 1 : 0;
    }
    CHECK(n_inside > 5, std::to_string(n_inside));
}

TEST(held_text_is_given_out_at_the_end) {
    // A text that ends (by length or by token) in the beginning of a stop string loses nothing.
    for (uint64_t seed = 0; seed < 40; ++seed) {
        const language lang{.seed = seed, .p_end = seed % 2 == 0 ? 0.1 : 0.0};
        pair           p(behaviour{.lang = lang}, behaviour{.lang = lang, .agree = 0.9});
        for (const int32_t n : {3, 10, 11, 12}) {
            p.run(ask{.n_predict = n,
                      .stop      = {"abbbbbbb", "aaaaaaaa", "baaaaaaa", "c a c a c", "\xe2\x82\xac\xe2\x82\xac"}});
        }
    }
}

TEST(nothing_of_a_stop_string_is_shown) {
    // Chunk by chunk: what was given out is always the beginning of the final text.
    for (uint64_t seed = 0; seed < 40; ++seed) {
        const language lang{.seed = seed};
        const ask      q{.n_predict = 80, .stop = {"abc", "ba a", "aa"}};
        const answer   want = reference(lang, 512, q);
        pair           p(behaviour{.lang = lang}, behaviour{.lang = lang, .agree = 0.9});
        p.line.begin(q.make());
        std::string shown;
        text_chunk  c;
        do {
            REQUIRE(p.line.next(*p.line.current(), c, now_us() + patience_us));
            shown += c.text;
            REQUIRE(want.text.starts_with(shown));
        } while (c.finish == finish_reason::none);
        CHECK_EQ(shown, want.text);
    }
}

TEST(end_token_ends_the_text) {
    int n_by_draft = 0;
    for (uint64_t seed = 0; seed < 60; ++seed) {
        const language lang{.seed = seed, .p_end = 0.05};
        pair           p(behaviour{.lang = lang, .pass_us = 50}, behaviour{.lang = lang, .agree = 0.9});
        for (const run_mode mode : modes) {
            const answer a = p.run(ask{.n_predict = 300}.as(mode, 5));
            CHECK_EQ(a.finish, finish_reason::stop);
            CHECK_EQ(a.tokens.back(), 0);
            n_by_draft += a.from_draft.back() ? 1 : 0;
            ask q{.n_predict = 100};
            q.sampling.ignore_eos = true;
            CHECK_EQ(p.run(q.as(mode, 5)).tokens.size(), 100u);
        }
    }
    CHECK(n_by_draft > 5, "the draft may guess the end, too");
}

TEST(log_probabilities) {
    const language lang{.seed = 4, .p_end = 0.02};
    pair           p(behaviour{.lang = lang}, behaviour{.lang = lang, .agree = 0.7});
    for (const int32_t n : {0, 1, 4}) {
        for (const run_mode mode : modes) {
            ask q{.n_predict = 60, .n_logprobs = n, .stop = {"cab"}};
            q.sampling.temp   = 0.7f;
            q                 = q.as(mode, 5);
            const answer got  = p.run(q);
            const answer want = reference(lang, 512, q);
            CHECK_EQ(got.logps, want.logps);
            REQUIRE_EQ(got.tops.size(), want.tops.size());
            for (size_t i = 0; i < got.tops.size(); ++i) {
                REQUIRE_EQ(got.tops[i].size(), want.tops[i].size());
                for (size_t k = 0; k < got.tops[i].size(); ++k) {
                    CHECK_EQ(got.tops[i][k].token, want.tops[i][k].token);
                    CHECK_EQ(got.tops[i][k].logp, want.tops[i][k].logp);
                }
            }
        }
    }
}

TEST(sampled_text_is_a_function_of_the_seed) {
    const language lang{.seed = 6};
    pair           p(behaviour{.lang = lang}, behaviour{.lang = lang, .agree = 0.6});
    answer         first;
    for (uint64_t seed = 0; seed < 10; ++seed) {
        ask q{.n_predict = 60};
        q.sampling = {.temp = 1.0f, .seed = seed};
        for (const run_mode mode : modes) {
            const answer a = p.run(q.as(mode));
            if (mode == run_mode::plain) {
                CHECK(a.tokens != first.tokens, "another seed, another text");
                first = a;
            }
            CHECK_EQ(a.tokens, first.tokens);
        }
    }
}

TEST(shared_noise_lets_a_draft_follow_a_sampled_target) {
    // The same distributions on both sides: with shared noise every guess is right also at temperature 1.
    const language lang{.seed = 6};
    pair           p(behaviour{.lang = lang, .pass_us = 100}, behaviour{.lang = lang});
    ask            q{.n_predict = 200};
    q.sampling     = {.temp = 1.0f, .seed = 3};
    const answer a = p.run(q.as(run_mode::async, 4));
    CHECK(a.stats.n_drafted > 20);
    CHECK_EQ(a.stats.n_accepted_at, a.stats.n_tested_at);
}

TEST(bad_requests_are_refused_before_any_work) {
    pair       p(behaviour{.n_ctx = 16}, behaviour{});
    const auto refused = [&](const std::vector<token_id> & prompt) {
        ask q;
        q.prompt = prompt;
        try {
            p.line.begin(q.make());
        } catch (const duo::error & e) {
            return std::string(e.what()).size() > 10;
        }
        return false;
    };
    CHECK(refused({}));
    CHECK(refused({-1}));
    CHECK(refused({40}));
    CHECK(refused(std::vector<token_id>(16, 1)));
    CHECK_EQ(p.target.n_decoded.load(), 0);
    CHECK(!p.line.running());
    p.run(ask{.n_predict = 5});
    p.line.close();
    CHECK(refused({1}), "closed");
}

TEST(a_complete_grammar_ends_the_text) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
        const language lang{.seed = seed};
        pair           p(behaviour{.lang = lang}, behaviour{.lang = lang, .agree = 0.8});
        const ask      free{.n_predict = 30};
        const answer   whole = p.run(free.as(run_mode::plain));
        for (const run_mode mode : modes) {
            for (const size_t n : {0, 1, 7, 20}) {
                ask q              = free.as(mode, 5);
                q.sampling.grammar = std::to_string(n);
                p.line.begin(q.make());
                const answer a = read_all(p.line);
                CHECK_EQ(a.error.sentence, std::string());
                CHECK(a.finish == finish_reason::stop);
                CHECK_EQ(a.tokens, std::vector<token_id>(whole.tokens.begin(), whole.tokens.begin() + long(n)));

                // Taken up again behind half of it, which is then a part of the prompt.
                q.sampling.n_prompt = int32_t(q.prompt.size());
                q.prompt.insert(q.prompt.end(), a.tokens.begin(), a.tokens.begin() + long(n / 2));
                p.line.begin(q.make());
                CHECK_EQ(read_all(p.line).tokens,
                         std::vector<token_id>(a.tokens.begin() + long(n / 2), a.tokens.end()));
            }
        }
        p.run(free.as(run_mode::async), "after it");
    }
}
