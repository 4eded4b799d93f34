// Drafts from the text itself: by hand, and against a search of the whole text by the rule in ngram_index.h.
#include <algorithm>
#include <array>

#include "check.h"
#include "random.h"
#include "tree/ngram_index.h"

using namespace duo;
using namespace duo_test;

namespace {

using tokens = std::vector<token_id>;

constexpr ngram_kind all_kinds[] = {ngram_kind::simple, ngram_kind::map_k, ngram_kind::map_k4v, ngram_kind::mod};

struct proposal {
    tokens  next;
    int32_t n_match = 0;
    int32_t n_hits  = 0;

    bool operator==(const proposal &) const = default;

    friend std::ostream & operator<<(std::ostream & out, const proposal & p) {
        out << p.n_match << "x" << p.n_hits << ":";
        check::show(out, p.next);
        return out;
    }
};

std::vector<proposal> ask(const ngram_index & index, const tokens & text, const tokens & tail = {}, int32_t n_max = 8,
                          size_t n_out = 6) {
    std::vector<ngram_proposal> out(n_out);
    std::vector<proposal>       got;
    const size_t                n = index.propose(text, tail, n_max, out);
    for (size_t i = 0; i < n; ++i) {
        got.push_back({out[i].tokens, out[i].n_match, out[i].n_hits});
    }
    return got;
}

std::vector<proposal> ask(const ngram_params & params, const tokens & text, const tokens & tail = {}, int32_t n_max = 8,
                          size_t n_out = 6) {
    ngram_index index;
    index.begin(params, text);
    return ask(index, text, tail, n_max, n_out);
}

// Descending.
std::vector<int32_t> key_lengths(int32_t size_n) {
    const int32_t        last = std::min(size_n, 2);
    std::vector<int32_t> out;
    for (int32_t step = 1; out.empty() || out.size() > 16; ++step) {
        out.clear();
        for (int32_t n = size_n; n >= last; n -= step) {
            out.push_back(n);
        }
    }
    return out;
}

proposal read_on(tokens text, size_t from, int32_t n, int32_t n_match, int32_t n_hits) {
    proposal p{{}, n_match, n_hits};
    for (int32_t k = 0; k < n; ++k) {
        text.push_back(text[from + size_t(k)]);
        p.next.push_back(text.back());
    }
    return p;
}

std::vector<proposal> brute_force(const ngram_params & params, const tokens & text, int32_t n_max, size_t n_out) {
    const int32_t n = std::min(n_max, params.size_m);
    for (const int32_t length : key_lengths(params.size_n)) {
        std::vector<size_t> ends; // of the key's earlier occurrences
        for (size_t e = size_t(length); e < text.size(); ++e) {
            if (std::equal(text.end() - length, text.end(), text.begin() + std::ptrdiff_t(e) - length)) {
                ends.push_back(e);
            }
        }
        const bool simple = params.kind == ngram_kind::simple;
        if (ends.size() < size_t(simple ? 1 : std::max(params.min_hits, 1))) {
            continue;
        }
        if (n < 1 || n_out < 1) {
            return {};
        }
        if (params.kind != ngram_kind::map_k4v) {
            return {read_on(text, ends.back(), n, length, simple ? 1 : int32_t(ends.size()))};
        }
        struct seen {
            int32_t n;
            size_t  end;
        };
        std::vector<seen> values;
        const auto better = [](const seen & a, const seen & b) { return a.n != b.n ? a.n > b.n : a.end > b.end; };
        for (const size_t e : ends) {
            const auto it =
                std::find_if(values.begin(), values.end(), [&](const seen & v) { return text[v.end] == text[e]; });
            if (it != values.end()) {
                *it = {it->n + 1, e};
            } else {
                values.resize(std::min<size_t>(values.size(), 3));
                values.push_back({1, e});
            }
            std::sort(values.begin(), values.end(), better);
        }
        std::vector<proposal> out;
        for (size_t i = 0; i < std::min(values.size(), n_out); ++i) {
            out.push_back(read_on(text, values[i].end, n, length, values[i].n));
        }
        return out;
    }
    return {};
}

} // namespace

TEST(ngram_simple) {
    const ngram_params p{.kind = ngram_kind::simple, .size_n = 3, .size_m = 4};
    // The last occurrence counts, and what follows it.
    CHECK_EQ(ask(p, {1, 2, 3, 7, 1, 2, 3, 8, 9, 1, 2, 3}, {}, 3), (std::vector<proposal>{{{8, 9, 1}, 3, 1}}));
    // A longer match wins over a later one.
    CHECK_EQ(ask(p, {1, 2, 3, 7, 5, 2, 3, 8, 1, 2, 3}, {}, 1), (std::vector<proposal>{{{7}, 3, 1}}));
    // No key of three: one of two. Keys of one are not tried.
    CHECK_EQ(ask(p, {4, 2, 3, 7, 5, 6, 1, 2, 3}, {}, 2), (std::vector<proposal>{{{7, 5}, 2, 1}}));
    CHECK_EQ(ask(p, {4, 3, 7, 5, 6, 1, 2, 3}).size(), 0u);
    CHECK_EQ(ask({.kind = ngram_kind::simple, .size_n = 1}, {4, 3, 7, 3}, {}, 1), (std::vector<proposal>{{{7}, 1, 1}}));
    // size_m and n_max both limit.
    CHECK_EQ(ask(p, {1, 2, 3, 4, 5, 6, 7, 1, 2, 3})[0].next, (tokens{4, 5, 6, 7}));
}

TEST(ngram_map_k) {
    const tokens       text{1, 2, 3, 7, 5, 2, 3, 8, 5, 2, 3, 9, 6, 1, 2, 3};
    const ngram_params p{.kind = ngram_kind::map_k, .size_n = 3, .min_hits = 1};
    CHECK_EQ(ask(p, text, {}, 2), (std::vector<proposal>{{{7, 5}, 3, 1}}));
    // 1 2 3 was seen once only, 2 3 three times.
    CHECK_EQ(ask({.kind = ngram_kind::map_k, .size_n = 3, .min_hits = 2}, text, {}, 2),
             (std::vector<proposal>{{{9, 6}, 2, 3}}));
    CHECK_EQ(ask({.kind = ngram_kind::map_k, .size_n = 3, .min_hits = 4}, text, {}, 2).size(), 0u);
}

TEST(ngram_map_k4v) {
    const ngram_params p{.kind = ngram_kind::map_k4v, .size_n = 2};
    // Most frequent first, then most recent; each with its own last continuation.
    const tokens text{1, 2, 3, 30, 1, 2, 4, 40, 1, 2, 3, 31, 1, 2, 5, 50, 1, 2};
    CHECK_EQ(ask(p, text, {}, 2), (std::vector<proposal>{{{3, 31}, 2, 2}, {{5, 50}, 2, 1}, {{4, 40}, 2, 1}}));
    CHECK_EQ(ask(p, text, {}, 2, 1), (std::vector<proposal>{{{3, 31}, 2, 2}}));
    // A fifth takes the place of the least frequent, the least recent of those.
    const tokens five{1, 2, 3, 1, 2, 3, 1, 2, 4, 1, 2, 5, 1, 2, 6, 1, 2, 7, 1, 2};
    CHECK_EQ(ask(p, five, {}, 1), (std::vector<proposal>{{{3}, 2, 2}, {{7}, 2, 1}, {{6}, 2, 1}, {{5}, 2, 1}}));
}

TEST(ngram_nothing_to_propose) {
    for (const ngram_kind kind : all_kinds) {
        const ngram_params p{.kind = kind, .size_n = 4};
        CHECK_EQ(ask(p, {}).size(), 0u);
        CHECK_EQ(ask(p, {1}).size() + ask(p, {1, 2}).size(), 0u);
        CHECK_EQ(ask(p, {1, 2, 3, 4, 5, 6, 7, 8}).size(), 0u);
        CHECK_EQ(ask(p, {}, {1, 2, 1, 2}, 2), (std::vector<proposal>{{{1, 2}, 2, 1}}));
        const tokens periodic{1, 2, 3, 1, 2, 3, 1, 2, 3};
        CHECK_EQ(ask(p, periodic, {}, 0).size(), 0u);
        CHECK_EQ(ask(p, periodic, {}, -5).size(), 0u);
        CHECK_EQ(ask(p, periodic, {}, 5, 0).size(), 0u);
        CHECK_EQ(ask({.kind = kind, .size_n = 4, .size_m = -1}, periodic).size(), 0u);
        CHECK_EQ(ask({.kind = kind, .size_n = -7, .min_hits = -3}, periodic).size(), 1u);
        CHECK_EQ(ask({.kind = kind, .size_n = INT32_MAX, .size_m = INT32_MAX}, periodic, {}, INT32_MAX).size(), 0u);
        CHECK_EQ(ask({.kind = kind, .size_n = 4, .min_hits = INT32_MAX}, periodic).size(),
                 size_t(kind == ngram_kind::simple));
    }
    CHECK_EQ(ask({.kind = ngram_kind::none}, {1, 1, 1, 1, 1, 1}).size(), 0u);
    CHECK_EQ(ask(ngram_index(), {1, 1, 1, 1, 1, 1}).size(), 0u);
}

TEST(ngram_shorter_text_than_indexed) {
    ngram_index  index;
    const tokens text{1, 2, 3, 1, 2, 3, 1, 2, 3};
    index.begin({.kind = ngram_kind::map_k4v, .size_n = 2}, text);
    CHECK_EQ(ask(index, {1, 2, 3, 1, 2}).size(), 0u);
    index.add(tokens{1, 2, 3});
    CHECK_EQ(ask(index, text, {}, 2), (std::vector<proposal>{{{1, 2}, 2, 2}}));
}

TEST(ngram_periodic_text_goes_on) {
    for (const ngram_kind kind : all_kinds) {
        for (int32_t period = 1; period <= 20; ++period) {
            tokens text;
            for (int32_t i = 0; i < 3 * period + 12; ++i) {
                text.push_back(100 + i % period);
            }
            const auto got = ask({.kind = kind}, text, {}, 48);
            REQUIRE_EQ(got.size(), 1u);
            CHECK_EQ(got[0].n_match, 12);
            for (int32_t k = 0; k < 48; ++k) {
                REQUIRE_EQ(got[0].next[size_t(k)], 100 + (int32_t(text.size()) + k) % period);
            }
        }
    }
}

TEST(ngram_as_brute_force) {
    const auto  n_seeds     = check::by_scale<uint64_t>(1500, 4000);
    int64_t     n_proposals = 0;
    ngram_index index; // one for all texts: what it knew of the text before must not matter
    for (uint64_t seed = 0; seed < n_seeds; ++seed) {
        dice               d(seed);
        const ngram_params p{.kind     = all_kinds[d.below(3)],
                             .size_n   = d.chance(0.1) ? d.between(60, 80) : d.between(1, 14),
                             .size_m   = d.between(0, 12),
                             .min_hits = d.between(-1, 4)};
        const uint32_t     n_letters = 1 + d.below(d.chance(0.5) ? 3 : 40);
        const auto         grow      = [&](tokens & text, int32_t n) {
            if (d.chance(0.4) && !text.empty()) { // a copy from further up, so that there are long matches too
                for (size_t i = d.below(uint32_t(text.size())); n-- > 0 && i < text.size(); ++i) {
                    text.push_back(text[i]);
                }
            }
            for (; n > 0; --n) {
                text.push_back(token_id(d.below(n_letters)));
            }
        };
        tokens text;
        grow(text, d.between(0, 100));
        index.begin(p, text);
        for (int k = 0; k < 12; ++k) {
            const std::string where = "seed " + std::to_string(seed) + " step " + std::to_string(k);
            const int32_t     n_max = d.between(0, 20);
            const size_t      n_out = d.below(6);
            const auto        want  = brute_force(p, text, n_max, n_out);
            REQUIRE_EQ(ask(index, text, {}, n_max, n_out), want, where);
            n_proposals += int64_t(want.size());
            ngram_index whole;
            whole.begin(p, text);
            REQUIRE_EQ(ask(whole, text, {}, n_max, n_out), want, where);

            tokens longer = text;
            grow(longer, d.between(0, 20));
            const tokens tail(longer.begin() + std::ptrdiff_t(text.size()), longer.end());
            const auto   below = brute_force(p, longer, n_max, n_out);
            REQUIRE_EQ(ask(index, text, tail, n_max, n_out), below, where);
            REQUIRE_EQ(ask(index, longer, {}, n_max, n_out), below, where + ", not added yet");

            grow(text, d.between(0, 20));
            index.add(text);
        }
    }
    CHECK(n_proposals > int64_t(3 * n_seeds), std::to_string(n_proposals));
}

TEST(ngram_hash_collisions_are_no_match) {
    // No token comes twice, so no pair does; of 2^18 keys against 2^18 the index's 28 bits of hash must collide often.
    constexpr uint32_t n = 1 << 18;
    tokens             text;
    for (uint32_t i = 0; i < n; ++i) {
        text.push_back(token_id(i * 40503u % n));
    }
    for (const ngram_kind kind : all_kinds) {
        ngram_index index;
        index.begin({.kind = kind, .size_n = 2}, text);
        std::array<ngram_proposal, 1> out;
        size_t                        n_wrong = 0, n_right = 0;
        for (uint32_t i = 0; i + 2 < n; ++i) {
            const token_id not_there[] = {text[i], text[i + 2]};
            const token_id there[]     = {text[i], text[i + 1]};
            n_wrong += index.propose(text, not_there, 1, out);
            n_right += index.propose(text, there, 1, out) == 1 && out[0].tokens[0] == text[i + 2] && out[0].n_hits == 1;
        }
        CHECK_EQ(n_wrong, 0u);
        CHECK_EQ(n_right, size_t(n - 2));
    }
}

TEST(ngram_long_text) {
    // The table grows many times; 40 letters make nearly all keys of four or more tokens unique, but for the copies.
    dice               d(1);
    const ngram_params p{.kind = ngram_kind::map_k4v};
    ngram_index        index;
    tokens             text;
    index.begin(p, text);
    for (int i = 0; i < 200000; ++i) {
        text.push_back(token_id(i % 1000 > 800 ? text[size_t(i) / 2] : token_id(d.below(40))));
        index.add(text);
        if (i % 10007 == 0) {
            REQUIRE_EQ(ask(index, text), brute_force(p, text, 8, 6), std::to_string(i));
        }
    }
}

TEST(ngram_proposals_use_their_storage_again) {
    ngram_index  index;
    const tokens text{1, 2, 3, 1, 2, 3, 1, 2, 3};
    index.begin({.kind = ngram_kind::simple, .size_n = 2}, text);
    std::array<ngram_proposal, 1> out;
    REQUIRE_EQ(index.propose(text, {}, 48, out), 1u);
    const token_id * storage = out[0].tokens.data();
    REQUIRE_EQ(index.propose(text, {}, 3, out), 1u);
    CHECK_EQ(out[0].tokens, (tokens{1, 2, 3}));
    CHECK(out[0].tokens.data() == storage);
}
