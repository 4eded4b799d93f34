// The rules of acceptance by themselves: rejection leaves the target's distribution as it is, typical and top-n follow
// their formulas, noise is the target's own draw.
#include <cmath>

#include "check.h"
#include "draws.h"
#include "model/acceptance.h"

using namespace duo;
using namespace duo_test;

namespace {

constexpr double limit = 5.0; // deviations. The seeds are fixed, so a test passes or fails for ever

// n decisions, each with draws of its own: positions of one text, or beginnings of texts with different seeds.
drawn decide(const std::vector<double> & p, const std::vector<double> & q, size_t n_guesses, int64_t n, bool one_seed) {
    acceptance             rule;
    drawn                  out;
    std::vector<candidate> guesses;
    std::vector<token_id>  tokens;
    const auto             chances = dist(p);
    for (int64_t i = 0; i < n; ++i) {
        sampling_params s{.temp = 1.0f, .accept = accept_rule::rejection};
        s.seed                             = one_seed ? 7 : uint64_t(i);
        const size_t                pos    = one_seed ? size_t(i) : 3;
        std::vector<candidate>      shares = dist(q);
        const std::vector<token_id> path{token_id(i / 1000), token_id(i % 1000)};
        rule.draw(s, path, shares, n_guesses, guesses);
        tokens.clear();
        for (const candidate & g : guesses) {
            tokens.push_back(g.token);
        }
        const token_id t = rule.choose(s, pos, chances, {.tokens = tokens, .shares = shares});
        ++out.counts[t];
        ++out.n;
        out.n_first += t == tokens.front() ? 1 : 0;
        out.n_guessed += std::find(tokens.begin(), tokens.end(), t) != tokens.end() ? 1 : 0;
    }
    return out;
}

double overlap(const std::vector<double> & p, const std::vector<double> & q) {
    double sum = 0.0;
    for (size_t i = 0; i < p.size(); ++i) {
        sum += std::min(p[i], q[i]);
    }
    return sum;
}

const std::vector<double> target{0.40, 0.25, 0.15, 0.10, 0.06, 0.04, 0.00};
const std::vector<double> near_it{0.30, 0.35, 0.05, 0.20, 0.02, 0.08, 0.00};
const std::vector<double> far_off{0.02, 0.03, 0.05, 0.05, 0.15, 0.20, 0.50}; // half of it is no token of the target's
const std::vector<double> narrow{0.00, 0.90, 0.00, 0.10, 0.00, 0.00, 0.00};

// Texts of n tokens after a prompt, in blocks of n_levels guesses; as counts of their numbers in base 5.
drawn write_blocks(size_t n_levels, size_t n, int64_t n_texts, const markov & p, const markov & q, double & n_mean) {
    acceptance               rule;
    drawn                    out;
    std::vector<block_level> levels(n_levels);
    std::vector<candidate>   guess;
    int64_t                  n_blocks = 0, n_accepted = 0;
    for (int64_t i = 0; i < n_texts; ++i) {
        const sampling_params s{.temp = 1.0f, .seed = uint64_t(i), .accept = accept_rule::rejection};
        std::vector<token_id> text{1, 2};
        while (text.size() < n + 2) {
            std::vector<token_id> path = text;
            for (block_level & l : levels) {
                l.chances = p.after(path);
                l.shares  = q.after(path);
                rule.draw(s, path, l.shares, 1, guess);
                l.guess = guess.front().token;
                path.push_back(l.guess);
            }
            const block_verdict v = rule.choose(s, text.size(), levels);
            for (size_t k = 0; k < v.n_accepted; ++k) {
                text.push_back(levels[k].guess);
            }
            if (v.next != no_token) {
                REQUIRE(v.n_accepted < n_levels);
                text.push_back(v.next);
            }
            ++n_blocks;
            n_accepted += int64_t(v.n_accepted);
        }
        token_id number = 0;
        for (size_t k = 2; k < n + 2; ++k) {
            number = number * 5 + text[k] - 1;
        }
        ++out.counts[number];
        ++out.n;
    }
    n_mean = double(n_accepted) / double(n_blocks);
    return out;
}

} // namespace

TEST(rejection_keeps_the_distribution) {
    for (const auto & q : {near_it, far_off, narrow, target}) {
        for (const size_t n : {1, 2, 3, 7}) {
            for (const bool one_seed : {false, true}) {
                const drawn d    = decide(target, q, n, check::by_scale(20000, 60000), one_seed);
                const auto  note = std::to_string(n) + " guesses, first share " + std::to_string(q[0]);
                CHECK(deviation(d, target) < limit, note);
            }
        }
    }
}

TEST(rejection_accepts_as_much_as_can_be) {
    // The chance that the first draw is taken is what the two distributions have in common (Leviathan et al., 3.3).
    for (const auto & q : {near_it, far_off, narrow, target}) {
        const drawn  d = decide(target, q, 1, 60000, false);
        const double a = overlap(target, q);
        const double z = (double(d.n_first) - a * double(d.n)) / std::sqrt(double(d.n) * a * (1.0 - a) + 1.0);
        // A token that was refused can still be drawn from what is left only if its share was below its chance.
        CHECK(std::abs(z) < limit, "first share " + std::to_string(q[0]) + ", deviation " + std::to_string(z));
    }
    CHECK_EQ(decide(target, target, 1, 1000, false).n_first, 1000);
    // More draws are accepted more often, and all of q's tokens cannot be worse than some of them.
    const drawn one = decide(target, near_it, 1, 60000, false);
    const drawn two = decide(target, near_it, 2, 60000, false);
    CHECK(two.n_guessed > one.n_guessed + 1000);
    CHECK_EQ(decide(target, near_it, 6, 1000, false).n_guessed, 1000);
}

TEST(blocks_keep_the_distribution_and_accept_more) {
    const markov        p;
    const markov        q{.accent = 5, .blend = 0.5};
    constexpr size_t    n = 4;
    std::vector<double> all(5 * 5 * 5 * 5);
    for (size_t number = 0; number < all.size(); ++number) {
        std::vector<token_id> text{1, 2};
        double                chance = 1.0;
        for (size_t k = 0, unit = 125; k < n; ++k, unit /= 5) {
            const auto t = token_id(number / unit % 5 + 1);
            for (const candidate & c : p.after(text)) {
                chance *= c.token == t ? std::exp(double(c.logp)) : 1.0;
            }
            text.push_back(t);
        }
        all[number] = chance;
    }
    std::vector<double> means;
    for (const size_t n_levels : {1, 2, 3, 6}) {
        double mean = 0.0;
        CHECK(deviation(write_blocks(n_levels, n, check::by_scale(20000, 60000), p, q, mean), all) < limit,
              std::to_string(n_levels));
        means.push_back(mean);
    }
    // Token by token, a chain of guesses that are right at the rate a each has a + a^2 + ... of them accepted.
    const double a = means[0];
    CHECK(means[1] > a + a * a + 0.02, std::to_string(means[1]) + " of two, one: " + std::to_string(a));
    CHECK(means[2] > means[1] && means[3] > means[2]);
}

TEST(a_test_of_rejection_would_notice) {
    // Guesses that are chosen for their share in q, and tested as if they were draws, bias the text: this is what the
    // statistic is there to see.
    acceptance     rule;
    drawn          biased;
    const auto     chances = dist(target);
    const auto     shares  = dist(near_it);
    const token_id best    = shares.front().token;
    for (int64_t i = 0; i < 60000; ++i) {
        const sampling_params s{.temp = 1.0f, .seed = uint64_t(i), .accept = accept_rule::rejection};
        ++biased.counts[rule.choose(s, 5, chances, {.tokens = std::span(&best, 1), .shares = shares})];
        ++biased.n;
    }
    CHECK(deviation(biased, target) > 20.0 * limit);
}

TEST(draws_have_the_drafts_distribution) {
    acceptance             rule;
    drawn                  first, second;
    std::vector<candidate> guesses;
    for (int64_t i = 0; i < 60000; ++i) {
        const sampling_params       s{.temp = 1.0f, .seed = 3, .accept = accept_rule::rejection};
        std::vector<candidate>      shares = dist(near_it);
        const std::vector<token_id> text{token_id(i % 300), token_id(i / 300)};
        rule.draw(s, text, shares, 2, guesses);
        CHECK_EQ(guesses.size(), size_t(2));
        ++first.counts[guesses[0].token];
        ++second.counts[guesses[1].token];
        ++first.n;
        ++second.n;
        CHECK(guesses[0].logp <= 0.0f && guesses[1].logp <= 0.0f);
        CHECK(std::exp(double(guesses[0].logp)) + std::exp(double(guesses[1].logp)) < 1.0 + 1e-5);
    }
    CHECK(deviation(first, near_it) < limit);
    std::vector<double> after(near_it.size(), 0.0); // sum over x of q(x) q(y) / (1 - q(x))
    for (size_t x = 0; x < near_it.size(); ++x) {
        for (size_t y = 0; y < near_it.size(); ++y) {
            after[y] += x == y ? 0.0 : near_it[x] * near_it[y] / (1.0 - near_it[x]);
        }
    }
    CHECK(deviation(second, after) < limit);
}

TEST(a_draft_draws_from_its_best_tokens) {
    std::vector<double> p(40);
    for (size_t i = 0; i < p.size(); ++i) {
        p[i] = std::exp(-0.1 * double(i)) * (1.0 - std::exp(-0.1)) / (1.0 - std::exp(-4.0));
    }
    acceptance             rule;
    std::vector<candidate> shares = dist(p);
    std::vector<candidate> guesses;
    const token_id         text[] = {1, 2};
    rule.draw({.temp = 1.0f, .accept = accept_rule::rejection}, text, shares, 100, guesses);
    CHECK_EQ(shares.size(), acceptance::n_shares_most);
    CHECK_EQ(guesses.size(), acceptance::n_shares_most);
    double sum = 0.0;
    for (const candidate & c : shares) {
        sum += std::exp(double(c.logp));
    }
    CHECK(std::abs(sum - 1.0) < 1e-5);
    // What the draft leaves out comes from what the target has left.
    std::vector<double> q(p.size(), 0.0);
    for (const candidate & c : shares) {
        q[size_t(c.token)] = std::exp(double(c.logp));
    }
    CHECK(deviation(decide(p, q, 4, 60000, false), p) < limit);
}

TEST(typical_acceptance_is_its_formula) {
    acceptance rule;
    for (const auto & p : {target, near_it, far_off, narrow, std::vector<double>(50, 0.02)}) {
        const auto chances = dist(p);
        double     entropy = 0.0;
        for (const double x : p) {
            entropy -= x > 0.0 ? x * std::log(x) : 0.0;
        }
        for (const double threshold : {0.0, 0.01, 0.09, 0.5, 1.0}) {
            for (const double alpha : {0.0, 0.1, 0.3, 1.0}) {
                sampling_params s{.temp = 1.0f, .accept = accept_rule::typical};
                s.posterior_threshold = float(threshold);
                s.posterior_alpha     = float(alpha);
                const double want     = std::min(double(float(threshold)), double(float(alpha)) * std::exp(-entropy));
                CHECK(std::abs(acceptance::typical_limit(s, chances) - want) < 1e-6);
                for (token_id t = 0; t < token_id(p.size()); ++t) {
                    s.seed              = uint64_t(t) + 11;
                    const token_id own  = rule.choose(s, 4, chances, {});
                    const token_id then = rule.choose(s, 4, chances, {.tokens = std::span(&t, 1), .shares = {}});
                    if (std::abs(p[size_t(t)] - want) > 1e-6) {
                        CHECK_EQ(then, p[size_t(t)] > want ? t : own);
                    }
                }
            }
        }
    }
    // The first guess that passes is taken, whatever comes after it.
    sampling_params s{.temp = 1.0f, .accept = accept_rule::typical};
    const token_id  guesses[] = {6, 5, 2, 0}; // impossible, 0.04, 0.15, 0.40; the limit is min(0.09, 0.3 * 0.22)
    CHECK_EQ(rule.choose(s, 4, dist(target), {.tokens = guesses, .shares = {}}), 2);
}

TEST(top_n_takes_guesses_among_the_best) {
    acceptance      rule;
    sampling_params s{.temp = 1.0f, .accept = accept_rule::top_n};
    for (int32_t n = 1; n <= 7; ++n) {
        s.accept_top = n;
        for (token_id t = 0; t < 7; ++t) {
            s.seed             = uint64_t(t) + 3;
            const token_id own = rule.choose(s, 9, dist(target), {});
            CHECK_EQ(rule.choose(s, 9, dist(target), {.tokens = std::span(&t, 1), .shares = {}}),
                     t < n && target[size_t(t)] > 0.0 ? t : own);
        }
    }
}

TEST(without_a_guess_every_rule_is_the_shared_noise) {
    acceptance rule;
    const auto chances = dist(target);
    drawn      d;
    for (uint64_t seed = 0; seed < 60000; ++seed) {
        sampling_params s{.temp = 1.0f, .seed = seed};
        token_id        want = no_token;
        float           best = 0.0f;
        for (const candidate & c : chances) {
            const float x = c.logp + gumbel_noise(seed, 12, c.token);
            if (want == no_token || x > best) {
                want = c.token;
                best = x;
            }
        }
        for (const auto r : {accept_rule::noise, accept_rule::rejection, accept_rule::typical, accept_rule::top_n}) {
            s.accept = r;
            CHECK_EQ(rule.choose(s, 12, chances, {}), want);
        }
        ++d.counts[want];
        ++d.n;
    }
    CHECK(deviation(d, target) < limit);
    const sampling_params greedy{.temp = 0.0f, .accept = accept_rule::typical};
    CHECK(greedy.rule() == accept_rule::noise);
}
