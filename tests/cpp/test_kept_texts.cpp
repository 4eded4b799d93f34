// Texts that leave the target's cache and come back from RAM; errands beside several texts.
#include <thread>

#include "base/same.h"
#include "pair.h"
#include "verify/kept_texts.h"

using namespace duo_test;

namespace {

std::vector<token_id> tokens_of(token_id first, size_t n) {
    std::vector<token_id> all;
    for (size_t i = 0; i < n; ++i) {
        all.push_back(token_id(1 + (size_t(first) * 7 + i * i) % 39));
    }
    all.front() = first;
    return all;
}

// Two models, a pipeline of n texts, and asks that are compared with the reference.
struct several {
    explicit several(int32_t n_texts, int64_t n_kept_bytes, int32_t n_spare = 64)
        : model({.n_ctx = 512, .n_branch = 4 * n_texts, .n_spare = n_spare}), target(model),
          draft(behaviour{.n_ctx = 512, .n_branch = 4 * n_texts, .n_spare = 600, .agree = 0.8}),
          line(&target, &draft, {.n_texts = n_texts, .n_kept_bytes = n_kept_bytes}) {}

    answer run(const std::vector<token_id> & prompt, int32_t n_predict = 10) {
        const ask q{.prompt = prompt, .n_predict = n_predict};
        line.begin(q.make());
        const answer a = read_all(line);
        check_same(a, reference(model.lang, model.n_ctx, q), "");
        check_stats(a, q, "");
        return a;
    }

    behaviour      model;
    scripted_model target;
    scripted_model draft;
    pipeline       line;
};

} // namespace

TEST(kept_texts_hold_what_fits_and_drop_the_oldest) {
    const auto  a = tokens_of(1, 10), b = tokens_of(2, 10), c = tokens_of(3, 10);
    const auto  bytes = int64_t(10 * sizeof(token_id) + 60);
    kept_texts  kept(2 * bytes + int64_t(sizeof(token_id)));
    std::string image(60, 'x');
    CHECK(kept.find(a, {}) == nullptr);
    kept.add(a, std::string(image), {});
    kept.add(b, std::string(image), {});
    CHECK_EQ(kept.bytes(), 2 * bytes);
    CHECK(!kept.wants(a, {})); // counts as used
    kept.add(c, std::string(image), {});
    CHECK_EQ(kept.size(), size_t(2));
    CHECK(kept.find(b, {}) == nullptr);
    REQUIRE(kept.find(a, {}) != nullptr);
    CHECK(kept.find(a, {})->tokens == a);

    // A text takes the place of those that it begins with, and is not wanted where a longer one is.
    auto longer = a;
    longer.push_back(5);
    CHECK(kept.wants(longer, {}));
    kept.add(longer, std::string(image), {});
    CHECK_EQ(kept.size(), size_t(2));
    CHECK(kept.find(a, {})->tokens == longer);
    CHECK(!kept.wants(a, {}));

    kept.add(b, std::string(1000, 'x'), {}); // larger than all the room
    CHECK(kept.find(b, {}) == nullptr);
    kept.drop(*kept.find(c, {}));
    CHECK_EQ(kept.size(), size_t(1));
    kept.drop(*kept.find(a, {}));
    CHECK_EQ(kept.bytes(), 0);

    kept_texts none(0), all(kept_without_limit);
    CHECK(!none.wants(a, {}));
    CHECK(all.wants(a, {}));
    all.add(a, std::string(1 << 20, 'x'), {});
    CHECK_EQ(all.size(), size_t(1));

    // Cells are of use only with the scales of the adapters with which they were computed.
    CHECK(all.find(a, {0.5f}) == nullptr && all.wants(a, {0.5f}));
    all.add(a, std::string(image), {0.5f});
    CHECK_EQ(all.size(), size_t(2));
    CHECK_EQ(all.find(a, {0.5f})->saved, image);
    CHECK_EQ(all.find(a, {})->saved.size(), size_t(1 << 20));
}

TEST(a_text_that_was_pushed_out_comes_back) {
    several    s(2, kept_without_limit);
    const auto a = tokens_of(1, 200), b = tokens_of(2, 200), c = tokens_of(3, 200);
    for (const auto * prompt : {&a, &b, &c}) { // the cache has 576 cells
        CHECK_EQ(s.run(*prompt).stats.n_prompt_cached, 0);
    }
    CHECK_EQ(s.target.n_restored.load(), 0);
    CHECK(s.line.usage().target.n_kept >= 1 && s.line.usage().target.kept_bytes > 200 * 4);
    for (int i = 0; i < 3; ++i) {
        for (const auto * prompt : {&a, &b, &c}) {
            const verify_stats stats = s.run(*prompt, 10 + i).stats;
            CHECK_EQ(stats.n_prompt_cached, int32_t(prompt->size()) - 1);
            CHECK(stats.n_prompt_returned == 0 || stats.n_prompt_returned == stats.n_prompt_cached);
        }
    }
    CHECK(s.target.n_restored.load() >= 3);
    // Only its beginning is wanted.
    auto half = a;
    half.resize(150);
    half.insert(half.end(), {9, 9, 9});
    CHECK(s.run(half).stats.n_prompt_cached >= 150);

    several off(2, 0);
    for (const auto * prompt : {&a, &b, &c, &a}) {
        CHECK_EQ(off.run(*prompt).stats.n_prompt_cached, 0);
    }
    CHECK_EQ(off.target.n_restored.load(), 0);
    CHECK_EQ(off.line.usage().target.kept_bytes, 0);
}

TEST(kept_texts_in_random_schedules) {
    int64_t n_restored = 0;
    for (uint64_t seed = 0; seed < 60 && check::n_failed.load() < 10; ++seed) {
        dice                             d(seed);
        const std::string                note    = "seed " + std::to_string(seed);
        const int32_t                    n_texts = d.between(1, 4);
        const int64_t                    rooms[] = {kept_without_limit, 3000, 900};
        several                          s(n_texts, rooms[d.below(3)], d.between(20, 200));
        std::vector<ask>                 asks;
        std::vector<std::vector<answer>> got(4);
        for (int i = 0; i < 24; ++i) {
            ask q{.prompt    = tokens_of(token_id(1 + d.below(4)), size_t(d.between(70, 220))),
                  .n_predict = d.between(1, 40)};
            q.prompt.resize(q.prompt.size() - 2);
            q.prompt.push_back(token_id(1 + d.below(39)));
            q.plan.mode = d.chance(0.3) ? run_mode::plain : run_mode::async;
            q.scales    = d.chance(0.4) ? duo::lora_scales{d.chance(0.5) ? 0.5f : 1.0f} : duo::lora_scales{};
            asks.push_back(q);
        }
        std::vector<std::thread> threads;
        for (size_t t = 0; t < got.size(); ++t) {
            threads.emplace_back([&, t] {
                for (size_t i = t; i < asks.size(); i += got.size()) {
                    answer &   a    = got[t].emplace_back();
                    const auto text = s.line.begin(asks[i].make());
                    read_some(s.line, *text, a, size_t(-1));
                }
            });
        }
        for (std::thread & t : threads) {
            t.join();
        }
        for (size_t i = 0; i < asks.size(); ++i) {
            const answer & a = got[i % got.size()][i / got.size()];
            check_same(a, reference(s.model.lang, s.model.n_ctx, asks[i]), note);
            check_stats(a, asks[i], note);
        }
        errand look;
        CHECK_EQ(run_errand(s.line, look).finish, finish_reason::stop, note);
        const worker_usage u = s.line.usage().target;
        for (size_t b = 0; b < look.target.held.size(); ++b) {
            CHECK_EQ(look.target.held[b], b % 4 == 0 ? u.cells[b / 4] : 0, note);
        }
        n_restored += s.target.n_restored.load();
    }
    CHECK(n_restored > 200, std::to_string(n_restored));
}

TEST(errands_beside_several_texts) {
    several    s(3, 0);
    const auto a = tokens_of(1, 100), b = tokens_of(2, 100), c = tokens_of(3, 100);
    for (const auto * prompt : {&a, &b, &c}) {
        s.run(*prompt);
    }
    errand saved{.what = errand::kind::save};
    CHECK_EQ(run_errand(s.line, saved).finish, finish_reason::stop);
    CHECK_EQ(n_same(saved.target.tokens, c), 100); // of the text that ended last
    errand of_a{.what = errand::kind::save, .n_keep = 100};
    CHECK_EQ(run_errand(s.line, of_a, a).finish, finish_reason::stop);
    CHECK(of_a.target.tokens == a);
    errand look;
    run_errand(s.line, look, b);
    CHECK_EQ(n_same(look.target.tokens, b), 100);

    // What is restored takes the place of the oldest text.
    several other(3, 0);
    other.run(a);
    other.run(b);
    errand given{.what = errand::kind::restore};
    given.target = {.tokens = saved.target.tokens, .given = saved.target.saved};
    given.draft  = {.tokens = saved.draft.tokens, .given = saved.draft.saved};
    CHECK_EQ(run_errand(other.line, given).finish, finish_reason::stop);
    for (const auto * prompt : {&a, &b, &c}) {
        CHECK_EQ(other.run(*prompt).stats.n_prompt_cached, 99);
    }
    errand again{.what = errand::kind::restore};
    again.target = {.tokens = of_a.target.tokens, .given = of_a.target.saved};
    CHECK_EQ(run_errand(other.line, again).finish, finish_reason::stop);
    CHECK_EQ(other.run(c).stats.n_prompt_cached, 99);

    errand score{.what = errand::kind::score};
    CHECK_EQ(run_errand(s.line, score, tokens_of(4, 60)).finish, finish_reason::stop);
    CHECK_EQ(score.logp.size(), size_t(59));
    CHECK_EQ(s.run(c).stats.n_prompt_cached, 99); // another one went
}

// An errand waits until no text runs, and no text begins before it: neither starves.
TEST(errands_among_texts_that_keep_coming) {
    several                  s(3, kept_without_limit, 100);
    std::atomic<int>         n_errands{0};
    std::vector<std::thread> threads;
    for (token_id t = 1; t <= 4; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < 20 || n_errands.load() < 20; ++i) {
                answer     a;
                const ask  q{.prompt = tokens_of(t, 80), .n_predict = 20};
                const auto text = s.line.begin(q.make());
                read_some(s.line, *text, a, size_t(-1));
                check_same(a, reference(s.model.lang, s.model.n_ctx, q), "");
            }
        });
    }
    threads.emplace_back([&] {
        for (int i = 0; i < 20; ++i, ++n_errands) {
            errand job{.what = i % 2 == 0 ? errand::kind::look : errand::kind::save};
            auto   r = std::make_unique<request>();
            r->job   = std::shared_ptr<errand>(std::shared_ptr<void>(), &job);
            answer     a;
            const auto text = s.line.begin(std::move(r));
            read_some(s.line, *text, a, size_t(-1));
            CHECK_EQ(a.finish, finish_reason::stop);
        }
    });
    for (std::thread & t : threads) {
        t.join();
    }
}
