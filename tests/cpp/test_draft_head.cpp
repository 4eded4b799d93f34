// Draft heads: the target's hidden states reach the right rows, in every mode and with several texts at once, and what
// is lost on the way costs acceptance only.
#include <thread>

#include "draft/draft_head.h"
#include "headed.h"
#include "rings/feature_ring.h"

using namespace duo;
using namespace duo_test;

namespace {

// Guesses below accepted ones, and of these the right ones. N-grams and blocks have no age.
void check_ages(const answer & a, const std::string & note) {
    const verify_stats & st  = a.stats;
    const auto           sum = [](const auto & xs) { return std::accumulate(xs.begin(), xs.end(), 0); };
    CHECK(sum(st.n_tested_of_age) <= st.n_drafted - st.n_ngram, note);
    CHECK(sum(st.n_accepted_of_age) <= st.n_accepted - st.n_ngram_accepted, note);
    for (size_t i = 0; i < st.n_tested_of_age.size(); ++i) {
        CHECK(st.n_accepted_of_age[i] <= st.n_tested_of_age[i], note);
    }
}

} // namespace

TEST(ring_hands_rows_over_in_order) {
    const int32_t  n_all = check::n_cases(20000);
    feature_ring   ring(3, 16);
    spsc_ring<int> messages(64);
    std::thread    producer([&] {
        dice    d(1);
        int32_t at = 0;
        while (at < n_all) {
            const auto n = std::min(int32_t(d.between(1, 5)), n_all - at);
            if (!ring.has_room(size_t(n))) {
                std::this_thread::yield();
                continue;
            }
            for (int32_t i = 0; i < n; ++i) {
                const auto row = ring.add(at + i);
                std::fill(row.begin(), row.end(), float(at + i));
            }
            if (messages.try_push(n)) {
                at += n;
            } else {
                ring.take_back(size_t(n));
                std::this_thread::yield();
            }
        }
    });
    int32_t        at = 0;
    while (at < n_all) {
        int n = 0;
        if (!messages.try_pop(n)) {
            std::this_thread::yield();
            continue;
        }
        ring.take(size_t(n), [&](token_id token, std::span<const float> row) {
            REQUIRE_EQ(token, at);
            REQUIRE(row.size() == 3 && row[0] == float(at) && row[2] == float(at));
            ++at;
        });
    }
    producer.join();
    CHECK(ring.has_room(16));
    CHECK(!ring.has_room(17));
}

TEST(states_after_a_gap_count_and_those_before_do_not) {
    const std::vector<token_id> text{7, 8, 9, 10, 11, 12, 13, 14};
    draft_head                  h;
    const auto                  take = [&](int32_t from, int32_t to) {
        for (int32_t pos = from; pos < to; ++pos) {
            const float f = float(pos);
            h.take(pos, text[size_t(pos)], {&f, 1});
        }
    };
    const auto rows = [&](int32_t pos, int32_t n) {
        std::vector<float> out;
        h.append(pos, n, out);
        return out;
    };
    CHECK_EQ(h.n_ready(1), 0);
    take(0, 3);
    take(1, 4); // evaluated again
    CHECK_EQ(h.n_ready(1), 4);
    CHECK_EQ(h.first_ready(1), 1);
    CHECK(rows(1, 4) == std::vector<float>({0, 1, 2, 3}));
    h.drop_before(4);
    CHECK_EQ(h.n_ready(4), 1);
    CHECK(rows(4, 1) == std::vector<float>({3}));
    take(6, 8);
    CHECK_EQ(h.n_ready(4), 0);
    CHECK_EQ(h.first_ready(4), 7);
    CHECK(rows(7, 2) == std::vector<float>({6, 7}));

    // What is missing is taken to be like what came after it.
    h.bridge(4);
    CHECK_EQ(h.n_ready(4), 5);
    CHECK_EQ(h.first_ready(4), 4);
    CHECK(rows(4, 5) == std::vector<float>({6, 6, 6, 6, 7}));
    h.drop_before(7);

    // The next text has more of the old one than the draft was told, and then something else.
    const std::vector<token_id> told(text.begin(), text.begin() + 7);
    std::vector<token_id>       next = text;
    h.begin(told, next);
    CHECK_EQ(h.n_ready(7), 2);
    next[7] = 99;
    h.begin(told, next);
    CHECK_EQ(h.n_ready(7), 1);
    next[2] = 99;
    h.begin(told, next);
    CHECK_EQ(h.n_ready(7), 0);
}

TEST(a_head_that_is_right_is_always_accepted_in_turns) {
    for (const int32_t n_max : {1, 4, 7}) {
        const behaviour b{.n_batch = 16};
        headed          pair(b);
        dice            d{uint64_t(n_max)};
        ask             q;
        q.n_predict = 60;
        for (int32_t turn = 0; turn < 4; ++turn) { // each text begins with the one before, as a chat does
            const auto more = some_prompt(d, turn == 0 ? 50 : 5, b.lang.n_vocab);
            q.prompt.insert(q.prompt.end(), more.begin(), more.end());
            const int64_t n_true = pair.head.n_true.load();
            pair.line.begin(q.as(run_mode::sync, n_max).make());
            const answer      a    = read_all(pair.line);
            const std::string note = "n_max " + std::to_string(n_max) + ", turn " + std::to_string(turn);
            check_same(a, reference(b.lang, b.n_ctx, q), note);
            check_all_accepted(a, n_max, note);
            check_ages(a, note);
            CHECK_EQ(a.stats.n_tested_of_age[0], a.stats.n_tested_at[0],
                     note); // in turns a guess is as old as it is deep
            CHECK(turn == 0 || a.stats.n_prompt_cached > 50, note);
            // Nothing of the text before was read again, and nothing of this one was left out.
            CHECK(pair.head.n_true.load() - n_true <= (turn == 0 ? 53 : 15) + 60, note);
            q.prompt.insert(q.prompt.end(), a.tokens.begin(), a.tokens.end());
        }
        pair.line.begin(q.as(run_mode::sync, n_max).make());
        check_all_accepted(read_all(pair.line), n_max, "the same prompt again");
        pair.line.begin(q.as(run_mode::sync, n_max).make());
        check_all_accepted(read_all(pair.line), n_max, "and again");
    }
}

TEST(text_is_the_targets_in_every_mode) {
    const int n_schedules = check::n_cases(200);
    int       n_accepted = 0, n_rejected = 0, n_hits = 0, n_old = 0;
    for (int i = 0; i < n_schedules; ++i) {
        dice            d(uint64_t(i) + 100);
        const behaviour b{.lang       = {.seed = uint64_t(i)},
                          .n_levels   = i % 3 == 2 ? d.between(2, 9) : 1,
                          .n_batch    = d.between(8, 64),
                          .second     = 0.5,
                          .agree      = 0.3 + 0.7 * d.between(0, 100) / 100.0,
                          .accent     = d.next(),
                          .delay_us   = d.between(0, 1) * 60,
                          .delay_seed = d.next()};
        headed          pair(b, {.prior = {.shared = d.chance(0.3)}});
        for (int turn = 0; turn < 3; ++turn) {
            ask q;
            q.prompt    = some_prompt(d, d.between(1, 120), b.lang.n_vocab);
            q.n_predict = d.between(1, 60);
            if (d.chance(0.3)) {
                q.sampling = {.temp = 0.8f, .seed = uint32_t(i)};
            }
            q = q.as(d.chance(0.7) ? run_mode::async : run_mode::sync, d.chance(0.7) ? d.between(1, 9) : n_draft_auto);
            if (d.chance(0.2)) {
                q.plan.tree = {{0}, {1}, {0, 0}, {0, 1}, {0, 0, 0}};
            } else if (d.chance(0.2)) {
                q.plan.use = tree_use::dynamic;
            } else if (d.chance(0.2)) {
                q.plan.ngram = {.kind = ngram_kind::map_k, .size_n = 2, .size_m = 8};
            }
            pair.line.begin(q.make());
            const answer      a    = read_all(pair.line);
            const std::string note = "schedule " + std::to_string(i);
            check_same(a, reference(b.lang, b.n_ctx, q), note);
            CHECK_EQ(a.warning, std::string(), note);
            check_ages(a, note);
            n_accepted += a.stats.n_accepted;
            n_old += std::accumulate(a.stats.n_tested_of_age.begin() + 1, a.stats.n_tested_of_age.end(), 0);
            n_rejected += a.stats.n_drafted - a.stats.n_accepted;
            n_hits += a.stats.n_hits;
        }
    }
    CHECK(n_accepted > 20 * n_schedules);
    CHECK(n_rejected > 5 * n_schedules);
    CHECK(n_hits > n_schedules);
    CHECK(n_old > n_schedules);
}

TEST(several_texts_have_their_own_states) {
    const int n_schedules = check::n_cases(60);
    int       n_accepted  = 0;
    for (int i = 0; i < n_schedules; ++i) {
        dice              d(uint64_t(i) + 900);
        constexpr int32_t n_texts = 3;
        const behaviour   b{.n_levels = i % 3 == 2 ? d.between(2, 40) : 1,
                            .n_ctx    = 256,
                            .n_branch = 24,
                            .n_spare  = 600,
                            .agree    = 0.8,
                            .accent   = d.next(),
                            .delay_us = 40};
        headed            pair(b, {.n_texts = n_texts});
        std::vector<ask>  asks;
        for (int32_t t = 0; t < 6; ++t) {
            ask q;
            q.prompt    = some_prompt(d, d.between(1, 90), b.lang.n_vocab);
            q.n_predict = d.between(5, 60);
            asks.push_back(q.as(run_mode::async, d.chance(0.5) ? 5 : n_draft_auto));
        }
        std::vector<answer>      answers(asks.size());
        std::vector<std::thread> readers;
        for (size_t t = 0; t < asks.size(); ++t) {
            readers.emplace_back([&, t] {
                const auto text = pair.line.begin(asks[t].make());
                read_some(pair.line, *text, answers[t], size_t(-1));
            });
        }
        for (std::thread & r : readers) {
            r.join();
        }
        for (size_t t = 0; t < asks.size(); ++t) {
            const std::string note = "schedule " + std::to_string(i) + ", text " + std::to_string(t);
            check_same(answers[t], reference(b.lang, b.n_ctx, asks[t]), note);
            n_accepted += answers[t].stats.n_accepted;
        }
    }
    CHECK(n_accepted > 20 * n_schedules);
}

TEST(a_block_is_one_step) {
    for (const int32_t n_max : {1, 3, 7}) {
        for (const bool samples : {false, true}) {
            const behaviour b{.n_levels = 8, .n_batch = 16};
            headed          pair(b);
            dice            d{uint64_t(n_max)};
            ask             q;
            q.n_predict            = 60;
            q.prompt               = some_prompt(d, 50, b.lang.n_vocab);
            q.sampling             = samples ? sampling_params{.temp = 0.8f, .seed = 3} : q.sampling;
            const int64_t     n    = pair.head.n_decoded.load();
            const std::string note = "n_max " + std::to_string(n_max);
            pair.line.begin(q.as(run_mode::sync, n_max).make());
            const answer a = read_all(pair.line);
            check_same(a, reference(b.lang, b.n_ctx, q), note);
            check_all_accepted(a, n_max, note);
            // Steps over the prompt, which has come in pieces, and one for each pass.
            CHECK(pair.head.n_decoded.load() - n <= a.stats.n_passes + 8, note);
        }
    }
}

TEST(a_text_goes_on_without_a_head_that_fails) {
    for (const int64_t at : {0, 1, 3, 9}) {
        const behaviour b{.throw_at = at};
        headed          pair(b);
        const ask       q = ask().as(run_mode::sync, 3);
        pair.line.begin(q.make());
        const answer a = read_all(pair.line);
        check_same(a, reference(b.lang, b.n_ctx, q), "fails at " + std::to_string(at));
        CHECK(a.warning.find("fails") != std::string::npos);
        pair.line.begin(q.make());
        check_all_accepted(read_all(pair.line), 3, "the next text has it again");
    }
}
