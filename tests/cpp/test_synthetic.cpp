// Synthetic models: they agree as often as asked, the next token is a function of the text, passes take their time.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "check.h"
#include "random.h"
#include "synthetic_world.h"

using namespace duo_test;

namespace {

// One position of a text that the target writes.
struct guess {
    int32_t pos  = 0; // of the token that is guessed
    size_t  rank = n_ranks;
    double  p    = 0.0; // that the first candidate was said to have
};

std::vector<guess> write_text(const synthetic_options & o, int32_t n) {
    synthetic_model    target(o, false);
    synthetic_model    draft(o, true);
    text               all{5, 6, 7};
    std::vector<guess> guesses;
    read(target, all, 0);
    read(draft, all, 0);
    for (int32_t i = 0; i < n; ++i) {
        const size_t   n_rows = i == 0 ? 3 : 1;
        const token_id t      = chosen(target, all, n_rows);
        const auto     c      = after(draft, all, n_rows);
        REQUIRE_EQ(c.size(), size_t(n_ranks));
        guess              g{.pos = int32_t(all.size()), .p = std::exp(double(c[0].logp))};
        std::set<token_id> distinct;
        for (size_t rank = 0; rank < c.size(); ++rank) {
            g.rank = c[rank].token == t ? rank : g.rank;
            distinct.insert(c[rank].token);
            CHECK(c[rank].token >= 0 && c[rank].token < o.n_vocab);
        }
        CHECK_EQ(distinct.size(), c.size());
        guesses.push_back(g);
        all.push_back(t);
        read(target, all, int32_t(all.size()) - 1);
        read(draft, all, int32_t(all.size()) - 1);
    }
    return guesses;
}

template <typename F> double share(const std::vector<guess> & all, F is) {
    int n = 0;
    for (const guess & g : all) {
        n += is(g) ? 1 : 0;
    }
    return double(n) / double(all.size());
}

template <typename F> std::vector<guess> only(const std::vector<guess> & all, F is) {
    std::vector<guess> some;
    std::copy_if(all.begin(), all.end(), std::back_inserter(some), is);
    return some;
}

bool is_first(const guess & g) {
    return g.rank == 0;
}

// n independent draws came out as `p`, within 4 standard errors; fixed seeds: passes or fails for ever.
void check_share(double measured, double p, size_t n, const std::string & note) {
    CHECK(std::abs(measured - p) <= 4.0 * std::sqrt(p * (1.0 - p) / double(n)) + 1e-12,
          note + ": " + std::to_string(measured) + " for " + std::to_string(p));
}

} // namespace

TEST(synthetic_agrees_by_rank) {
    for (const double a : {0.8, 0.3}) {
        synthetic_options o = timeless();
        o.agree.a           = {a};
        const auto guesses  = write_text(o, 20000);
        double     rest     = 1.0;
        for (int32_t rank = 0; rank < n_ranks; ++rank) {
            const double p = rank == 0 ? a : (1.0 - a) * std::pow(1.0 - o.agree.b, rank - 1) * o.agree.b;
            check_share(share(guesses, [&](const guess & g) { return g.rank == size_t(rank); }), p, guesses.size(),
                        "rank " + std::to_string(rank));
            rest -= p;
        }
        check_share(share(guesses, [](const guess & g) { return g.rank == size_t(n_ranks); }), rest, guesses.size(),
                    "none");
        CHECK(std::abs(guesses[0].p - a) < 1e-6);
        // Neighbours are independent.
        int n_both = 0;
        for (size_t i = 1; i < guesses.size(); ++i) {
            n_both += is_first(guesses[i - 1]) && is_first(guesses[i]) ? 1 : 0;
        }
        check_share(double(n_both) / double(guesses.size() - 1), a * a, guesses.size() / 2, "pairs");
    }
}

TEST(synthetic_agreement_in_stretches) {
    synthetic_options o = timeless();
    o.agree.a           = {0.9, 0.5, 0.1};
    o.agree.n_stretch   = 16;
    o.agree.confident   = true;
    const auto guesses  = write_text(o, 20000);
    for (size_t k = 0; k < 3; ++k) {
        const auto some = only(guesses, [&](const guess & g) { return size_t(g.pos / 16) % 3 == k; });
        check_share(share(some, is_first), o.agree.a[k], some.size(), "stretch " + std::to_string(k));
        for (const guess & g : some) {
            CHECK(std::abs(g.p - o.agree.a[k]) < 1e-6);
        }
    }
    o.agree.confident = false;
    CHECK(std::abs(write_text(o, 1)[0].p - 0.5) < 1e-6, "the mean");
    o.agree.says = 0.3;
    CHECK(std::abs(write_text(o, 1)[0].p - 0.3) < 1e-6, "whatever is true");
}

TEST(synthetic_agreement_in_bursts) {
    synthetic_options o = timeless();
    o.agree.a           = {0.7};
    o.agree.burst       = 0.5;
    o.agree.confident   = true;
    const auto guesses  = write_text(o, 20000);
    // A run of 8 counts as one draw: their mean is no surer than that.
    check_share(share(guesses, is_first), 0.7, guesses.size() / 8, "mean");
    for (const double p : {0.85, 0.35}) { // easy, hard
        const auto some = only(guesses, [&](const guess & g) { return std::abs(g.p - p) < 1e-6; });
        check_share(share(some, is_first), p, some.size(), "runs with " + std::to_string(p));
        check_share(double(some.size()) / double(guesses.size()), p > 0.7 ? 0.7 : 0.3, guesses.size() / 8, "runs");
    }
    o.agree.burst = 1.0;
    for (const guess & g : write_text(o, 2000)) {
        CHECK_EQ(g.rank == 0, g.p > 0.5, "always or never");
    }
}

TEST(synthetic_text_is_a_function_of_the_text) {
    for (const bool is_draft : {false, true}) {
        synthetic_model m(timeless(), is_draft);
        text            all;
        dice            random(3);
        for (int i = 0; i < 50; ++i) {
            all.push_back(random.between(0, 31999));
        }
        const auto same = [](const std::vector<candidate> & x, const std::vector<candidate> & y) {
            return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const candidate & p, const candidate & q) {
                return p.token == q.token && p.logp == q.logp;
            });
        };
        read(m, all, 0);
        const auto want = after(m, all, 50);
        CHECK_EQ(want.size(), size_t(is_draft ? n_ranks : 1));

        CHECK(m.rollback(0, 20));
        read(m, all, 20); // in two goes
        CHECK(same(after(m, all, 30), want));

        m.fork(0, 9, 49);
        read(m, all, 49, 9);
        CHECK(same(after(m, all, 1), want), "another branch");
        CHECK(m.rollback(9, 0));
        CHECK(same(after(m, all, 1), want), "a pass is remembered when its rows are not");

        read(m, all, 0, 20, 3);
        CHECK(same(after(m, all, 50), want), "three branches at once");
        CHECK_EQ(m.cached(22), all);

        synthetic_options other = timeless();
        other.seed              = 2;
        synthetic_model n(other, is_draft);
        read(n, all, 0);
        CHECK(!same(after(n, all, 50), want), "another seed");

        text moved(all.begin() + 1, all.end());
        CHECK(m.rollback(0, 0));
        read(m, moved, 0);
        CHECK(!same(after(m, moved, 49), want), "another position");
    }
}

TEST(synthetic_logprobs_and_pieces) {
    synthetic_model m(timeless(), false);
    const text      all{1, 2, 3, 4};
    read(m, all, 0);
    const token_id         t = chosen(m, all, 4);
    std::vector<candidate> top(3);
    CHECK_EQ(m.logprobs(3, t, top), 0.0f);
    CHECK_EQ(top[0].token, t);
    CHECK(top[1].token != t && top[2].token != top[1].token && top[1].logp < -10.0f);
    CHECK(m.logprobs(3, t + 1, {}) < -10.0f);
    std::set<std::string> words;
    for (token_id i = 0; i < 32000; ++i) {
        words.insert(m.piece(i));
        CHECK(!m.is_end(i));
    }
    CHECK_EQ(words.size(), size_t(32000));
}

TEST(synthetic_options_are_checked) {
    const auto refused = [](auto spoil, const char * note) {
        synthetic_options o;
        spoil(o);
        check_throws([&] { synthetic_model(o, true); }, note);
    };
    refused([](auto & o) { o.agree.a = {}; }, "no a");
    refused([](auto & o) { o.agree.a = {0.5, 1.5}; }, "a");
    refused([](auto & o) { o.agree.b = NAN; }, "b");
    refused([](auto & o) { o.agree.burst = -0.1; }, "burst");
    refused([](auto & o) { o.n_vocab = 3; }, "n_vocab");
    refused([](auto & o) { o.n_ctx = 0; }, "n_ctx");
    refused([](auto & o) { o.pass_us = -1.0; }, "pass_us");
    refused([](auto & o) { o.v = {{2, 1.0}, {2, 1.1}}; }, "v does not ascend");
    refused([](auto & o) { o.v = {{0, 1.0}}; }, "v of no rows");
    refused([](auto & o) { o.v = {{1, 0.0}}; }, "v of no time");
}

TEST(synthetic_cost_by_rows) {
    const pass_cost                                cost{.pass_us = 1000.0, .v = {{2, 1.0}, {4, 1.4}, {8, 3.0}}};
    const std::vector<std::pair<int32_t, int64_t>> want{{1, 1000}, {2, 1000}, {3, 1200}, {4, 1400},
                                                        {6, 2200}, {8, 3000}, {9, 3400}, {16, 6200}};
    for (const auto & [n, us] : want) {
        CHECK_EQ(cost.us(n), us, std::to_string(n));
    }
    const pass_cost level{.pass_us = 70.0, .v = {}};
    CHECK_EQ(level.us(8), 70);
    synthetic_options o;
    CHECK_EQ(o.target_cost().us(1), 20000);
    CHECK_EQ(o.target_cost().us(11), 24000);
    CHECK_EQ(o.draft_cost().us(1), 4000);
    CHECK_EQ(o.draft_cost().us(6), 4400);
}

TEST(synthetic_pass_takes_its_time) {
    synthetic_options o;
    o.pass_us = 3000.0;
    o.c       = 0.01;
    for (const bool is_draft : {false, true}) {
        synthetic_model m(o, is_draft);
        text            all;
        const auto      timed = [&](int32_t n) {
            const auto from = int32_t(all.size());
            all.insert(all.end(), size_t(n), 1);
            const int64_t t0 = now_us();
            read(m, all, from);
            return now_us() - t0;
        };
        CHECK(timed(1) >= (is_draft ? 30 : 3000));
        CHECK(timed(11) >= (is_draft ? 36 : 3600));
        CHECK(timed(1000) >= (is_draft ? 30 : 3000), "a prompt");

        std::atomic<bool> stop{true};
        const row         r{.token = 1, .pos = int32_t(all.size())};
        CHECK(m.decode(std::span(&r, 1), stop) == decode_status::stopped);
        CHECK_EQ(m.cached(0), all);
    }
}
