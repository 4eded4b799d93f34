// Rules of acceptance in whole texts: chains and trees, turns and look-ahead, several texts, one model elsewhere. What
// is counted is which token followed which two; with rejection, only the target's distribution may show in it.
#include "lanes.h"
#include "markov.h"

using namespace duo_test;

namespace {

// `make test` is short, and sanitizers look for other things. `make test-daily` and `make proof` write all texts.
const int32_t n_less = check::scale() > 1.0 ? 1 : 10;

// Right guesses in texts that depend on time. On a busy machine the draft rarely has its turn: more texts are written.
const int64_t n_least  = 2000 / n_less;
constexpr int patience = 50; // times as many texts

constexpr double limit = 5.0; // deviations; a text that takes turns is the same in every run
// Texts that depend on time are other ones in each run. One in a billion of them is as far off as this.
constexpr double limit_of_chance = 7.0;

const markov of_target{};
const markov of_draft{.accent = 5, .blend = 0.6};

ask some_text(uint64_t seed, accept_rule rule, int32_t n = 300) {
    ask q{.prompt = {1, 2}, .n_predict = n};
    q.sampling.temp   = 1.0f;
    q.sampling.seed   = seed;
    q.sampling.accept = rule;
    return q;
}

struct markov_pair {
    explicit markov_pair(const pipeline::options & opt = {}, const behaviour & b = {})
        : target(b, of_target), draft(b, of_draft), line(&target, &draft, opt) {}

    markov_model target;
    markov_model draft;
    pipeline     line;
};

struct count {
    transitions tokens;
    int64_t     n_drafted  = 0;
    int64_t     n_accepted = 0;
    int64_t     n_first    = 0; // guesses below the root, and how many were right
    int64_t     n_right    = 0;

    void add(const ask & q, const answer & a) {
        REQUIRE_EQ(a.error.sentence, std::string());
        std::vector<token_id> text = q.prompt;
        text.insert(text.end(), a.tokens.begin(), a.tokens.end());
        tokens.add(text, q.prompt.size());
        n_drafted += a.stats.n_drafted;
        n_accepted += a.stats.n_accepted;
        n_first += a.stats.n_tested_at[0];
        n_right += a.stats.n_accepted_at[0];
    }

    double share() const { return double(n_right) / double(n_first); }
};

// Until so many guesses were right, too.
count write(pipeline & line, const ask & q, int32_t n_texts, int64_t n_right = 0) {
    count c;
    for (int32_t i = 0; i < n_texts || (c.n_accepted < n_right && i < patience * n_texts); ++i) {
        ask one           = q;
        one.sampling.seed = q.sampling.seed + uint64_t(i);
        line.begin(one.make());
        const answer a = read_all(line);
        check_stats(a, one, "text " + std::to_string(i));
        c.add(one, a);
    }
    return c;
}

ask with_tree(ask q, std::vector<std::vector<int32_t>> tree) {
    q.plan.tree = std::move(tree);
    return q;
}

} // namespace

TEST(rejection_of_chains) {
    for (const int32_t n_max : {1, 3, 6}) {
        markov_pair p;
        const count c = write(p.line, some_text(100, accept_rule::rejection).as(run_mode::sync, n_max), 200 / n_less);
        CHECK(c.tokens.n() >= 50000 / n_less);
        CHECK(c.n_drafted > 10000 / n_less);
        CHECK(c.tokens.deviation(of_target) < limit, std::to_string(n_max));
        CHECK(c.tokens.deviation(of_draft) > 20.0 * limit / n_less);
    }
}

TEST(rejection_of_trees) {
    const std::vector<std::vector<std::vector<int32_t>>> trees{
        {{0}, {1}, {2}}, {{0}, {1}, {0, 0}, {0, 1}, {1, 0}, {0, 0, 0}}, {{0, 0, 0}, {0, 1}, {1, 0, 0}, {2}, {3}}};
    for (const auto & tree : trees) {
        markov_pair p;
        const count c =
            write(p.line, with_tree(some_text(500, accept_rule::rejection).as(run_mode::sync), tree), 200 / n_less);
        CHECK(c.tokens.n() >= 50000 / n_less);
        CHECK(c.tokens.deviation(of_target) < limit, std::to_string(tree.size()));
        CHECK(c.n_accepted > 20000 / n_less);
    }
}

TEST(rejection_while_the_draft_runs_ahead) {
    for (const tree_use use : {tree_use::automatic, tree_use::dynamic}) {
        behaviour b;
        b.pass_us = use == tree_use::automatic ? 50 : 0; // time for the draft, or none
        markov_pair p({}, b);
        ask         q = some_text(900, accept_rule::rejection).as(run_mode::async, 4);
        q.plan.use    = use;
        const count c = write(p.line, q, 200 / n_less, n_least);
        CHECK(c.tokens.n() >= 50000 / n_less);
        CHECK(c.tokens.deviation(of_target) < limit_of_chance, std::to_string(int(use)));
        CHECK(c.n_accepted >= n_least, std::to_string(c.n_accepted));
    }
}

TEST(rejection_of_several_texts) {
    constexpr int32_t n_texts = 3;
    behaviour         b;
    b.n_spare = 2000;
    markov_pair    p({.n_texts = n_texts}, b);
    count          c;
    const uint64_t n_rounds = uint64_t(70 / n_less);
    for (uint64_t round = 0; round < n_rounds || (c.n_accepted < n_least && round < patience * n_rounds); ++round) {
        std::vector<ask>                        asks;
        std::vector<std::shared_ptr<open_text>> texts;
        for (uint64_t i = 0; i < n_texts; ++i) {
            asks.push_back(some_text(7000 + round * n_texts + i, accept_rule::rejection, 250)
                               .as(i == 0 ? run_mode::sync : run_mode::async, 3));
            texts.push_back(p.line.begin(asks.back().make()));
        }
        for (size_t i = 0; i < n_texts; ++i) {
            answer a;
            read_some(p.line, *texts[i], a, size_t(-1));
            c.add(asks[i], a);
        }
    }
    CHECK(c.tokens.n() >= 50000 / n_less);
    CHECK(c.tokens.deviation(of_target) < limit_of_chance);
    CHECK(c.n_accepted >= n_least, std::to_string(c.n_accepted));
}

TEST(rejection_with_the_draft_elsewhere) {
    for (const double p_cut : {0.0, 0.01}) {
        markov_model target({}, of_target);
        markov_model draft({}, of_draft);
        pipeline     line(&target, nullptr, {.remote_draft = true});
        draft_host   host(draft, 1);
        places       free(1);
        const auto   lines = std::make_shared<draft_lines>(line.ends(), 1, target.facts().n_vocab);
        count        c;
        {
            carrier<draft_lane> lane(std::make_unique<draft_lane>(lines, 0, host, free),
                                     {.p_cut = p_cut, .away_us = 100, .seed = 3});
            c = write(line, some_text(11000, accept_rule::rejection).as(run_mode::async, 4), 170 / n_less, n_least);
        }
        CHECK(c.tokens.n() >= 50000 / n_less);
        CHECK(c.tokens.deviation(of_target) < limit_of_chance, std::to_string(p_cut));
        CHECK(c.n_accepted >= n_least, std::to_string(c.n_accepted));
    }
}

TEST(rejection_with_the_target_elsewhere) {
    for (const double p_cut : {0.0, 0.003}) {
        markov_model target({}, of_target);
        markov_model draft({}, of_draft);
        pipeline     line(nullptr, &draft, {.n_ctx_remote = target.facts().n_ctx});
        verify_host  host(target, 1);
        places       free(1);
        const auto lines = std::make_shared<target_lines>(line.ends(), 1, draft.facts().n_vocab, target.facts().n_ctx);
        count      c;
        {
            carrier<verify_lane> lane(std::make_unique<verify_lane>(lines, 0, host, free),
                                      {.p_cut = p_cut, .away_us = 100, .seed = 4});
            const uint64_t       n = uint64_t(170 / n_less);
            for (uint64_t i = 0; i < n || (c.n_accepted < n_least && i < patience * n); ++i) {
                const ask q = some_text(13000 + i, accept_rule::rejection).as(run_mode::async, 4);
                line.begin(q.make());
                c.add(q, read_all(line));
            }
        }
        CHECK(c.tokens.n() >= 50000 / n_less);
        CHECK(c.tokens.deviation(of_target) < limit_of_chance, std::to_string(p_cut));
        CHECK(c.n_accepted >= n_least, std::to_string(c.n_accepted));
    }
}

TEST(turns_write_the_same_text_again) {
    const ask   q = some_text(5, accept_rule::rejection).as(run_mode::sync, 3);
    markov_pair p;
    p.line.begin(q.make());
    const answer first = read_all(p.line);
    p.line.begin(q.make());
    CHECK_EQ(read_all(p.line).tokens, first.tokens);
    // Without a draft, and with the same seed, every rule writes what the shared noise writes.
    p.line.begin(some_text(5, accept_rule::noise).as(run_mode::async, 3).make());
    const answer noise = read_all(p.line);
    CHECK(noise.tokens != first.tokens);
    for (const auto r : {accept_rule::rejection, accept_rule::typical, accept_rule::top_n}) {
        p.line.begin(some_text(5, r).as(run_mode::plain).make());
        CHECK_EQ(read_all(p.line).tokens, noise.tokens);
    }
}

TEST(lossy_rules_accept_more) {
    const auto share_of = [](accept_rule rule) {
        markov_pair p;
        return write(p.line, some_text(100, rule).as(run_mode::sync, 3), 30);
    };
    const count noise = share_of(accept_rule::noise);
    CHECK(noise.tokens.deviation(of_target) < limit);
    for (const auto rule : {accept_rule::typical, accept_rule::top_n}) {
        const count c = share_of(rule);
        CHECK(c.share() > noise.share() + 0.05, std::to_string(c.share()) + ", noise " + std::to_string(noise.share()));
        CHECK(c.tokens.deviation(of_target) > limit, "they say that they are lossy");
    }
    CHECK(share_of(accept_rule::rejection).share() > noise.share() - 0.02);
}

TEST(a_hostile_draft_does_no_harm) {
    // Shares that are no distribution, and draws that no share belongs to: the text still ends.
    acceptance            rule;
    const sampling_params s{.temp = 1.0f, .seed = 1, .accept = accept_rule::rejection};
    const auto            chances = of_target.after(std::vector<token_id>{1, 2});
    for (const float logp : {0.0f, -50.0f, 1e-3f}) {
        const std::vector<candidate> shares{{1, logp}, {2, logp}, {3, logp}, {39, logp}};
        const std::vector<token_id>  draws{39, 3, 2, 1, 1, 17};
        const token_id               t = rule.choose(s, 3, chances, {.tokens = draws, .shares = shares});
        CHECK(t >= 1 && t <= of_target.n_tokens);
    }
}
