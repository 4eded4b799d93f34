// The synthetic models' cache: branches are lists of tokens, cells are shared, and a breach of the contract throws.
#include <algorithm>
#include <set>
#include <vector>

#include "random.h"
#include "synthetic_world.h"

using namespace duo_test;

namespace {

// The cache as a list of tokens for each branch.
struct plain_cache {
    std::vector<text> branches = std::vector<text>(64);

    void compare(const synthetic_model & m, const std::string & note) const {
        std::set<text> beginnings; // cells can be shared, so there are at least as many as there are beginnings
        size_t         n_most = 0;
        for (int32_t b = 0; b < 64; ++b) {
            const text & t = branches[size_t(b)];
            CHECK_EQ(m.cached(b), t, note);
            n_most += t.size();
            for (size_t n = 1; n <= t.size(); ++n) {
                beginnings.emplace(t.begin(), t.begin() + std::ptrdiff_t(n));
            }
        }
        CHECK(size_t(m.n_cells_used()) >= beginnings.size() && size_t(m.n_cells_used()) <= n_most, note);
    }
};

} // namespace

TEST(synthetic_cache_against_lists_of_tokens) {
    for (uint64_t seed = 0; seed < 30; ++seed) {
        dice              random(seed);
        synthetic_options o = timeless();
        o.n_vocab           = 32 + int32_t(seed % 3);
        o.n_ctx             = 2000;
        synthetic_model m(o, true);
        plain_cache     plain;
        const int32_t   n_used = 9; // branches; few, so that they meet
        for (int step = 0; step < 150; ++step) {
            const std::string note = "seed " + std::to_string(seed) + ", step " + std::to_string(step);
            const int32_t     b    = random.between(0, n_used - 1);
            text &            t    = plain.branches[size_t(b)];
            const auto        pos  = random.between(0, int32_t(t.size()));
            if (random.chance(0.25)) {
                const int32_t to = random.between(0, n_used - 1);
                if (to != b) {
                    CHECK(m.rollback(to, 0));
                    m.fork(b, to, pos);
                    plain.branches[size_t(to)].assign(t.begin(), t.begin() + pos);
                }
            } else if (random.chance(0.3)) {
                CHECK(m.rollback(b, pos));
                t.resize(size_t(pos));
            } else {
                // Rows for several branches, alone or together where their texts are the same. Some come to nothing.
                const int         what = random.chance(0.2) ? int(random.between(1, 2)) : 0;
                std::atomic<bool> stop{what == 1};
                plain_cache       next = plain;
                std::vector<row>  rows;
                for (int32_t i = random.between(1, 12); i-- > 0;) {
                    const int32_t first = random.between(0, n_used - 1);
                    int32_t       n     = 1;
                    while (first + n < n_used && next.branches[size_t(first + n)] == next.branches[size_t(first)] &&
                           random.chance(0.8)) {
                        ++n;
                    }
                    rows.push_back({.token      = random.between(0, 2), // so that texts meet
                                    .pos        = int32_t(next.branches[size_t(first)].size()),
                                    .branch     = first,
                                    .n_branches = n,
                                    .output     = true});
                    for (int32_t k = first; k < first + n; ++k) {
                        next.branches[size_t(k)].push_back(rows.back().token);
                    }
                }
                if (what == 2) {
                    rows.push_back({.token = 1, .pos = 1999});
                    check_throws([&] { m.decode(rows, stop); }, "a gap");
                } else if (m.decode(rows, stop) == decode_status::ok) {
                    CHECK_EQ(what, 0, note);
                    plain            = next;
                    const auto & end = plain.branches[size_t(rows.back().branch)];
                    CHECK_EQ(after(m, end, rows.size()).size(), size_t(n_ranks), note);
                } else {
                    CHECK_EQ(what, 1, note);
                }
            }
            plain.compare(m, note);
        }
        for (int32_t b = 0; b < n_used; ++b) {
            CHECK(m.rollback(b, 0));
        }
        CHECK_EQ(m.n_cells_used(), 0);
    }
}

TEST(synthetic_breaches_throw) {
    synthetic_options o = timeless();
    o.n_ctx             = 64;
    synthetic_model m(o, true);
    const text      all{1, 2, 3, 4};
    read(m, all, 0);
    const auto decode = [&](const row & r) { m.decode(std::span(&r, 1), go_on); };
    check_throws([&] { m.decode({}, go_on); }, "no rows");
    check_throws([&] { decode({.token = 1, .pos = 5}); }, "a gap");
    check_throws([&] { decode({.token = 1, .pos = 3}); }, "a position that is cached");
    check_throws([&] { decode({.token = 1, .pos = 4, .branch = 64}); }, "no such branch");
    check_throws([&] { decode({.token = 1, .pos = 0, .branch = 60, .n_branches = 5}); }, "nor these");
    check_throws([&] { decode({.token = 1, .pos = 0, .branch = 1, .n_branches = 0}); }, "in no branch");
    check_throws([&] { decode({.token = 32000, .pos = 4}); }, "no such token");
    check_throws([&] { decode({.token = -1, .pos = 4}); }, "nor this");
    check_throws([&] { m.fork(0, 0, 2); }, "a fork to itself");
    check_throws([&] { m.fork(0, 64, 2); }, "no such branch");
    check_throws([&] { m.rollback(-1, 2); }, "no such branch");
    check_throws([&] { m.rollback(0, -1); }, "no such position");
    m.fork(0, 1, 3);
    check_throws([&] { m.fork(0, 1, 3); }, "a fork to a branch that is not empty");
    m.fork(0, 2, 4);
    CHECK(m.rollback(2, 3));
    decode({.token = 9, .pos = 3, .branch = 1, .n_branches = 2});
    CHECK(m.rollback(2, 3));
    decode({.token = 8, .pos = 3, .branch = 2});
    check_throws([&] { decode({.token = 1, .pos = 4, .branch = 1, .n_branches = 2}); }, "different texts");

    std::vector<candidate> out(4);
    read(m, {1, 2, 3, 4, 5, 6}, 4);
    check_throws([&] { m.candidates(0, sampled, text{1, 2, 3, 4, 5}, out); }, "a row without output");
    check_throws([&] { m.candidates(2, sampled, text{1, 2, 3, 4, 5, 6}, out); }, "no such row");
    check_throws([&] { m.candidates(1, sampled, text{1, 2, 3, 4, 6, 6}, out); }, "another text");
    check_throws([&] { m.candidates(1, sampled, text{4, 5, 6}, out); }, "the text's end alone");
    CHECK_EQ(m.candidates(1, sampled, text{1, 2, 3, 4, 5, 6}, out), 4);

    text full(64, 7);
    for (int32_t b = 0; b < 5; ++b) { // 5 * 64 = n_ctx + 256
        CHECK(m.rollback(b, 0));
        read(m, full, 0, b);
    }
    CHECK_EQ(m.n_cells_used(), m.facts().n_cells);
    check_throws([&] { decode({.token = 1, .pos = 64}); }, "beyond the context");
    check_throws([&] { decode({.token = 1, .pos = 0, .branch = 6}); }, "no cell is free");
    m.fork(0, 6, 64); // costs none
    CHECK_EQ(m.cached(6), full);
}
