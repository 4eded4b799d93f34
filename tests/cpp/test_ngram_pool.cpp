// What earlier texts said, as a source of guesses: found by the longest match, bounded, and never a token that no model
// writes.
#include <algorithm>
#include <numeric>

#include "check.h"
#include "pair.h"
#include "random.h"
#include "tree/ngram_pool.h"
#include "verify/text_guesses.h"

using namespace duo;
using namespace duo_test;

namespace {

using tokens = std::vector<token_id>;

tokens random_text(dice & rnd, size_t n, int32_t n_vocab) {
    tokens text;
    for (size_t i = 0; i < n; ++i) {
        text.push_back(token_id(rnd.below(uint32_t(n_vocab))));
    }
    return text;
}

tokens last(const tokens & all, size_t n) {
    return {all.end() - ptrdiff_t(n), all.end()};
}

tokens guessed(const ngram_pool & pool, const tokens & text, const tokens & tail = {}, int32_t n_max = 8) {
    ngram_proposal p;
    return pool.propose(text, tail, n_max, p) ? p.tokens : tokens{};
}

} // namespace

TEST(a_pool_goes_on_as_an_earlier_text_did) {
    dice         rnd(1);
    const tokens a = random_text(rnd, 100, 1000);
    const tokens b = random_text(rnd, 100, 1000);
    ngram_pool   pool;
    CHECK(guessed(pool, a).empty());
    pool.add(a, 0);
    pool.add(b, 0);
    for (const tokens * text : {&a, &b}) {
        for (size_t n = 8; n + 8 <= text->size(); n += 13) {
            const tokens begun{text->begin(), text->begin() + ptrdiff_t(n)};
            const tokens next{text->begin() + ptrdiff_t(n), text->begin() + ptrdiff_t(n + 8)};
            CHECK_EQ(guessed(pool, begun), next);
            CHECK_EQ(guessed(pool, tokens(begun.begin(), begun.end() - 3), last(begun, 3)), next);
            CHECK_EQ(guessed(pool, begun, {}, 2).size(), size_t(2));
        }
    }
    CHECK(guessed(pool, a, {5}).empty());                                     // a token more, and nothing is the same
    CHECK(guessed(pool, tokens(a.begin() + 20, a.begin() + 27)).empty());     // seven tokens are too few
    CHECK(guessed(pool, tokens(a.begin() + 20, a.begin() + 28)).size() == 8); // eight are enough
    CHECK(guessed(pool, a).empty());                                          // at a text's end is no token
    CHECK(guessed(pool, b).empty());
}

TEST(the_longest_match_of_a_pool_wins) {
    dice         rnd(2);
    const tokens same  = random_text(rnd, 10, 1000);
    tokens       a     = random_text(rnd, 30, 1000);
    tokens       b     = random_text(rnd, 30, 1000);
    const tokens asked = [&] {
        tokens t = last(a, 4);
        t.insert(t.end(), same.begin(), same.end());
        return t;
    }();
    a.insert(a.end(), same.begin(), same.end());
    b.insert(b.end(), same.begin(), same.end());
    a.push_back(1);
    b.push_back(2);
    ngram_pool pool;
    pool.add(a, 0);
    pool.add(b, 0); // later, but its match is shorter
    CHECK_EQ(guessed(pool, asked, {}, 1), tokens{1});
    CHECK_EQ(guessed(pool, same, {}, 1), tokens{2});
}

// Where a text ended, an older one may go on.
TEST(a_pool_looks_past_the_ends_of_texts) {
    dice         rnd(5);
    const tokens begun = random_text(rnd, 30, 1000);
    tokens       whole = begun;
    whole.insert(whole.end(), {7, 8, 9});
    ngram_pool pool;
    pool.add(whole, 0);
    pool.add(begun, 0); // read, but not written on
    CHECK_EQ(guessed(pool, begun), tokens({7, 8, 9}));
    const tokens   few(begun.begin(), begun.begin() + 10);
    ngram_proposal p;
    CHECK(pool.propose(few, {}, 1, p) && p.n_match <= 10);
}

TEST(a_pool_has_a_bound_and_forgets_the_oldest_texts) {
    dice       rnd(3);
    ngram_pool pool;
    tokens     first, newest;
    for (int i = 0; i < 40; ++i) {
        newest = random_text(rnd, 10000, 30000);
        first  = i == 0 ? newest : first;
        pool.add(newest, 0);
        CHECK(pool.size() <= ngram_pool::n_tokens_most);
        CHECK_EQ(guessed(pool, tokens(newest.begin(), newest.begin() + 50), {}, 1), tokens{newest[50]});
    }
    CHECK(guessed(pool, tokens(first.begin(), first.begin() + 50)).empty());
    pool.add(random_text(rnd, 2 * ngram_pool::n_tokens_most, 30000), 0);
    CHECK(pool.size() <= ngram_pool::n_tokens_most);
}

TEST(what_a_pool_knows_is_not_added_again) {
    dice       rnd(4);
    tokens     text = random_text(rnd, 5000, 1000);
    ngram_pool pool;
    pool.add(text, 0);
    for (int i = 0; i < 50; ++i) { // the turns of a conversation
        const size_t n_known = text.size();
        const tokens more    = random_text(rnd, 20, 1000);
        text.insert(text.end(), more.begin(), more.end());
        pool.add(text, n_known);
        CHECK_EQ(guessed(pool, tokens(text.begin(), text.end() - 15), {}, 15), last(text, 15));
    }
    CHECK(pool.size() < 5000 + 50 * 50);
    pool.add(text, text.size() + 7); // more than there is
    // Known to somebody else, but not to this pool.
    const tokens other = random_text(rnd, 200, 1000);
    pool.add(other, 150);
    CHECK_EQ(guessed(pool, tokens(other.begin(), other.begin() + 50), {}, 1), tokens{other[50]});
}

// The text's own match of its longest key is never worse, even if an earlier text says that its match is longer.
TEST(a_text_goes_before_earlier_ones) {
    dice         rnd(6);
    const tokens same = random_text(rnd, 40, 1000);
    tokens       old  = same;
    old.push_back(1);
    ngram_pool pool;
    pool.add(old, 0);
    tokens text = same;
    text.push_back(2);
    text.insert(text.end(), same.begin(), same.end());
    const guess_record record;
    request            req;
    req.prompt    = text;
    req.id        = request_node(1);
    req.plan.mode = run_mode::sync;
    for (const int32_t size_n : {12, 48}) {
        req.plan.ngram = {.kind = ngram_kind::mod, .size_n = size_n};
        text_guesses guesses;
        guesses.begin(req, text, {.pool = &pool});
        guesses.grow(text, record, 0.0, 8);
        REQUIRE(!guesses.tree().nodes().empty());
        CHECK_EQ(guesses.tree().nodes().front().token, 2);
    }
    req.plan.ngram = {.kind = ngram_kind::mod};
    text_guesses guesses;
    guesses.begin(req, same, {.pool = &pool});
    guesses.grow(same, record, 0.0, 8);
    REQUIRE(!guesses.tree().nodes().empty());
    CHECK_EQ(guesses.tree().nodes().front().token, 1);
    req.plan.ngram.min_hits = 2;
    guesses.begin(req, same, {.pool = &pool});
    guesses.grow(same, record, 0.0, 8);
    CHECK(guesses.tree().nodes().empty());
}

// A text that is written again: its first tokens name the earlier one, and the pool does the rest.
TEST(a_text_that_is_written_again_is_guessed_from_the_pool) {
    for (const run_mode mode : {run_mode::sync, run_mode::async}) {
        pair p{behaviour{}, behaviour{}};
        ask  q            = ask{.n_predict = 120}.as(mode, 8);
        q.plan.has_model  = false;
        q.plan.ngram      = {.kind = ngram_kind::map_k};
        const auto before = p.run(q).stats.n_ngram_accepted;
        q.plan.ngram.kind = ngram_kind::mod;
        p.run(q);
        const auto again = p.run(q);
        CHECK(again.stats.n_ngram_accepted > before + 40,
              std::to_string(before) + " " + std::to_string(again.stats.n_ngram_accepted));
        CHECK(again.stats.n_passes < 80);
    }
}
