// N-gram caches in llama.cpp's format: what is read, refused, counted and written, and which guesses follow.
#include <filesystem>
#include <fstream>
#include <limits>

#include "check.h"
#include "pair.h"
#include "tree/lookup_cache.h"
#include "verify/text_guesses.h"

using namespace duo;
using namespace duo_test;

namespace {

using tokens = std::vector<token_id>;

// A file that goes with the test.
struct file {
    explicit file(const std::string & name, const std::vector<int32_t> & numbers = {}, size_t n_cut = 0)
        : path((std::filesystem::temp_directory_path() /
                ("duo_lookup_" + name + std::to_string(reinterpret_cast<uintptr_t>(this))))
                   .string()) {
        std::ofstream out(path, std::ios::binary);
        out.write(reinterpret_cast<const char *>(numbers.data()),
                  std::streamsize(numbers.size() * sizeof(int32_t) - n_cut));
    }
    ~file() { std::filesystem::remove(path); }
    file(const file &)             = delete;
    file & operator=(const file &) = delete;

    const std::string path;
};

int32_t n_seen(const ngram_counts & counts, const tokens & key, token_id next) {
    const auto * all = counts.find(key);
    for (const auto & x : all != nullptr ? *all : std::vector<ngram_counts::next>{}) {
        if (x.token == next) {
            return x.count;
        }
    }
    return 0;
}

tokens guessed(const lookup_cache & cache, const tokens & text, const tokens & tail = {}, int32_t n_max = 8) {
    ngram_proposal p;
    return cache.propose(text, tail, n_max, p) ? p.tokens : tokens{};
}

std::string refusal(const std::vector<int32_t> & numbers, size_t n_cut = 0) {
    const file bad("bad", numbers, n_cut);
    try {
        ngram_counts().load(bad.path, 100);
    } catch (const error & e) {
        return e.what();
    }
    return {};
}

} // namespace

TEST(ngrams_are_counted_as_llama_cpp_counts_them) {
    ngram_counts counts;
    counts.add(tokens{1, 2, 3, 1, 2, 4}, 0);
    CHECK_EQ(n_seen(counts, {1}, 2), 2);
    CHECK_EQ(n_seen(counts, {2}, 3), 1);
    CHECK_EQ(n_seen(counts, {1, 2}, 3), 1);
    CHECK_EQ(n_seen(counts, {1, 2}, 4), 1);
    CHECK_EQ(n_seen(counts, {2, 3, 1}, 2), 1);
    CHECK_EQ(n_seen(counts, {2, 3, 1, 2}, 4), 1);
    CHECK(counts.find(tokens{4}) == nullptr);
    counts.add(tokens{1, 2, 5}, 2); // of which two are known
    CHECK_EQ(n_seen(counts, {1}, 2), 2);
    CHECK_EQ(n_seen(counts, {1, 2}, 5), 1);
    ngram_counts seen;
    seen.add(tokens{7, first_picture_id, 8, 9}, 0); // no n-gram has a picture's tokens
    CHECK_EQ(seen.size(), size_t(1));
    CHECK_EQ(n_seen(seen, {8}, 9), 1);
}

TEST(a_file_comes_back_as_it_was) {
    ngram_counts counts;
    counts.add(tokens{1, 2, 3, 1, 2, 4, 1, 2, 3}, 0);
    const file to("same");
    counts.save(to.path);
    ngram_counts again;
    again.load(to.path, 5);
    CHECK_EQ(again.size(), counts.size());
    CHECK_EQ(n_seen(again, {1, 2}, 3), 2);
    CHECK_EQ(n_seen(again, {3, 1, 2}, 4), 1);
    again.load(to.path, 5); // it is added
    CHECK_EQ(n_seen(again, {1, 2}, 3), 4);
    const file   known("known", {1, 2, -1, -1, 2, 3, 5, 4, 1}); // as common_ngram_cache_save writes it
    ngram_counts read;
    read.load(known.path, 5);
    CHECK_EQ(n_seen(read, {1, 2}, 3), 5);
    CHECK_EQ(n_seen(read, {1, 2}, 4), 1);
}

TEST(an_empty_file_is_an_empty_cache) { // a run without texts leaves one
    const file empty("empty");
    lookup_cache("", empty.path, 100).save(empty.path);
    CHECK(std::filesystem::file_size(empty.path) == 0);
    CHECK(guessed(lookup_cache(empty.path, empty.path, 100), {1, 2, 3}).empty());
}

TEST(huge_counts_choose_no_wrong_token) {
    constexpr int32_t huge = std::numeric_limits<int32_t>::max();
    const file        dynamic("huge", {7, -1, -1, -1, 2, 8, huge, 9, 3});
    const file        corpus("corpus", {6, 7, -1, -1, 2, 8, huge, 9, 1});
    CHECK(guessed(lookup_cache(corpus.path, dynamic.path, 100), {6, 7}, {}, 1) == tokens({8}));
}

TEST(a_file_that_is_none_is_refused) {
    CHECK(refusal({1, 2, -1, -1, 1, 3, 5}).empty());
    CHECK(refusal({1, 2, -1, -1, 1, 3, 5}, 1).find("is damaged") != std::string::npos);
    CHECK(refusal({1, 2, -1, -1, 0}).find("is damaged") != std::string::npos);
    CHECK(refusal({1, 2, -1, -1, 1 << 30, 3, 5}).find("is damaged") != std::string::npos);
    CHECK(refusal({1, -1, 2, -1, 1, 3, 5}).find("is damaged") != std::string::npos);
    CHECK(refusal({-1, -1, -1, -1, 1, 3, 5}).find("is damaged") != std::string::npos);
    CHECK(refusal({1, 2, -1, -1, 1, 3, 0}).find("is damaged") != std::string::npos);
    CHECK(refusal({1, 2, -1, -1, 1, 100, 5}).find("does not have") != std::string::npos);
    CHECK(refusal({100, 2, -1, -1, 1, 3, 5}).find("does not have") != std::string::npos);
    CHECK(refusal({1, -7, -1, -1, 1, 3, 5}).find("does not have") != std::string::npos);
}

// common_ngram_cache_draft: the least counts and shares, and how the static cache weighs the dynamic one.
TEST(guesses_follow_llama_cpps_rules) {
    const file         corpus("static", {1, 2, -1, -1, 2, 3, 3, 4, 3, //
                                         2, 3, -1, -1, 1, 5, 1,       // seen once: too rarely
                                         8, 9, -1, -1, 1, 6, 2});
    const lookup_cache fixed(corpus.path, "", 100);
    CHECK_EQ(guessed(fixed, {7, 1, 2}), tokens{3}); // half of them is enough; 2 3 has no guess
    CHECK_EQ(guessed(fixed, {7, 8}, {9}), tokens{6});
    CHECK_EQ(guessed(fixed, {7, 8}), tokens{});
    CHECK_EQ(guessed(fixed, {9}), tokens{});

    const auto dynamic = [](const std::vector<int32_t> & numbers, const std::string & from = "") {
        const file old("dynamic", numbers);
        return lookup_cache(from, old.path, 100);
    };
    CHECK_EQ(guessed(dynamic({2, -1, -1, -1, 1, 3, 3}), {1, 2}), tokens{}); // four of one token, three of two, two
    CHECK_EQ(guessed(dynamic({2, -1, -1, -1, 1, 3, 4}), {1, 2}), tokens{3});
    CHECK_EQ(guessed(dynamic({1, 2, -1, -1, 1, 3, 2}), {1, 2}), tokens{});
    CHECK_EQ(guessed(dynamic({1, 2, -1, -1, 1, 3, 3}), {1, 2}), tokens{3});
    CHECK_EQ(guessed(dynamic({1, 2, 3, 4, 1, 5, 2}), {1, 2, 3, 4}), tokens{5});
    CHECK_EQ(guessed(dynamic({1, 2, 3, 4, 2, 5, 2, 6, 2}), {1, 2, 3, 4}), tokens{}); // half is not
    // The longest n-gram that has a clear guess wins.
    CHECK_EQ(guessed(dynamic({1, 2, 3, 4, 1, 5, 2, 3, 4, -1, -1, 1, 6, 9}), {1, 2, 3, 4}, {}, 1), tokens{5});
    // The static cache says which of the frequent ones is more likely.
    CHECK_EQ(guessed(dynamic({0, 1, 2, -1, 2, 4, 4, 9, 2}, corpus.path), {0, 1, 2}, {}, 1), tokens{4});
    // Guesses go on from guesses.
    lookup_cache grown("", "no such file of this test", 100);
    for (int i = 0; i < 4; ++i) {
        grown.add(tokens{1, 2, 3, 4, 5, 6, 7, 8}, 0);
    }
    CHECK_EQ(guessed(grown, {1, 2}), tokens({3, 4, 5, 6, 7, 8}));
    CHECK_EQ(guessed(grown, {1, 2}, {3}, 2), tokens({4, 5}));
    lookup_cache never(corpus.path, "", 100);
    never.add(tokens{1, 2, 3, 4}, 0);
    CHECK_EQ(never.growing().size(), size_t(0));
}

// Where a text repeats itself less clearly than the caches say, they guess.
TEST(a_texts_own_longer_matches_come_first) {
    lookup_cache cache("", "no such file of this test", 100);
    for (int i = 0; i < 4; ++i) {
        cache.add(tokens{11, 12, 13, 14, 15}, 0);
    }
    const auto first_guess = [&cache](const tokens & text, ngram_kind kind) {
        request req;
        req.plan.ngram.kind = kind;
        guess_record record;
        text_guesses guesses;
        guesses.begin(req, text, {.lookup = &cache});
        guesses.grow(text, record, 0.0, 4);
        const auto & nodes = guesses.tree().nodes();
        return nodes.empty() ? no_token : nodes.front().token;
    };
    CHECK_EQ(first_guess({1, 12, 13, 14}, ngram_kind::map_k), 15);
    CHECK_EQ(first_guess({1, 12, 13, 14}, ngram_kind::none), no_token);
    CHECK_EQ(first_guess({13, 14, 20, 7, 12, 13, 14}, ngram_kind::map_k), 15);                  // two against three
    CHECK_EQ(first_guess({5, 11, 12, 13, 14, 20, 5, 11, 12, 13, 14}, ngram_kind::map_k4v), 20); // five against four
}

// Texts are the same with any guesses, and what was written is counted.
TEST(texts_with_a_lookup_cache) {
    const behaviour model{.n_ctx = 512, .n_branch = 4, .n_spare = 600};
    scripted_model  target(model);
    const auto      cache      = std::make_shared<lookup_cache>("", "no such file of this test", 1000);
    int32_t         n_accepted = 0;
    {
        pipeline line(&target, nullptr, {.lookup = cache});
        for (int i = 0; i < 6; ++i) {
            ask q{.prompt = {3, 1, 2}, .n_predict = 60};
            q.plan.ngram  = {.kind = ngram_kind::map_k4v};
            q.plan.always = true;
            line.begin(q.make());
            const answer a = read_all(line);
            check_same(a, reference(model.lang, model.n_ctx, q), "");
            n_accepted = a.stats.n_ngram_accepted;
        }
    }
    CHECK(n_accepted >= 30, std::to_string(n_accepted));
    CHECK(cache->growing().size() > 60);
}
