// The planner on real texts: how often a published draft was right, token by token (acceptance.txt), in simulated time.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "planner_world.h"

using namespace duo_test;

namespace {

struct text {
    std::string               name;
    int                       n_prompt = 0;
    std::vector<traced_guess> guesses;
};

// A line: name, temperature, n=tokens of the prompt, then a word such as 83/9:1 for each token.
std::vector<text> read_texts() {
    std::vector<text> all;
    std::ifstream     file(DUO_ACCEPTANCE);
    for (std::string line; std::getline(file, line);) {
        if (line.empty() || line[0] == '#') {
            continue;
        }
        std::istringstream words(line);
        std::string        temperature;
        std::string        n_prompt;
        text               t;
        words >> t.name >> temperature >> n_prompt;
        t.name += " " + temperature;
        t.n_prompt = std::stoi(n_prompt.substr(2));
        for (std::string word; words >> word;) {
            const size_t slash = word.find('/');
            const size_t colon = word.find(':');
            traced_guess g;
            g.logp[0] = float(std::log(std::max(0.005, std::stoi(word) / 100.0)));
            g.logp[1] = float(std::log(std::max(0.005, std::stoi(word.substr(slash + 1)) / 100.0)));
            g.right   = word[colon + 1] == '-' ? 0 : word[colon + 1] - '0';
            t.guesses.push_back(g);
        }
        all.push_back(std::move(t));
    }
    return all;
}

// Qwen2.5-Coder 1.5B with its 0.5B draft on two cores of an Intel Xeon, microseconds.
double qwen(int n) {
    constexpr double us[] = {44800, 45400, 47900, 50100, 54500, 56300, 60200, 64200};
    return n <= 8 ? us[n - 1] : us[7] + 5000.0 * (n - 8);
}

struct place {
    std::string name;
    bool        shared         = true;
    double      parallel       = 0.0; // of two cores: what one of them alone loses
    double      parallel_draft = 0.0;
    double      least_gain     = 0.0; // medians of all texts: of plain decoding
    double      least_of_turns = 0.0; // and of turn-taking with the length that is best for the text
};

facts facts_of(const place & p) {
    return {.v              = qwen,
            .step_us        = 15300.0,
            .price          = 0.08,
            .n_cores        = p.shared ? 2.0 : 0.0,
            .parallel       = p.parallel,
            .parallel_draft = p.parallel_draft};
}

pair_prior prior_of(const facts & f, const place & p) {
    pair_prior prior = prior_of(f);
    prior.shared     = p.shared;
    if (p.shared) {
        prior.split = {.target = 1, .draft = 1};
    }
    return prior;
}

// Each text; all are written by one planner, one after the other.
std::vector<world::result> written(const std::vector<text> & texts, const place & p, run_mode mode, int32_t n_max) {
    facts                      f = facts_of(p);
    text_planner               pl(prior_of(f, p), params(mode, n_max), n_branches);
    std::vector<world::result> out;
    for (const text & t : texts) {
        f.trace = t.guesses;
        pl.begin(params(mode, n_max), n_branches);
        world w(f);
        out.push_back(w.write(pl, int(t.guesses.size())));
    }
    return out;
}

// Times of the texts' first 64 tokens and of their prompts, as shares of those without a draft. The draft reads each
// prompt too, if the planner lets it.
std::vector<double> times_with_reading(const std::vector<text> & texts, const place & p) {
    constexpr double    prompt_row_us = 9000.0;
    constexpr double    draft_row_us  = 3100.0;
    facts               f             = facts_of(p);
    text_planner        pl(prior_of(f, p), params(run_mode::async), n_branches);
    std::vector<double> out;
    for (const text & t : texts) {
        f.trace      = t.guesses;
        f.prompt_us  = prompt_row_us * t.n_prompt;
        f.reading_us = draft_row_us * t.n_prompt;
        pl.begin(params(run_mode::async), n_branches);
        world      w(f);
        const auto r = w.write(pl, std::min(64, int(t.guesses.size())));
        out.push_back((f.prompt_us + r.us) / (f.prompt_us + r.n_tokens * qwen(1)));
    }
    return out;
}

double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

} // namespace

// The lengths of turn-taking are chosen with hindsight. The shortest texts have 12 to 21 tokens: a few wrong guesses
// make such a text slower than without a draft.
TEST(real_texts_gain_what_they_can) {
    const std::vector<text> texts = read_texts();
    REQUIRE(texts.size() == 28, DUO_ACCEPTANCE);
    for (const place & p : {place{"cores that lose much alone", true, 0.7, 0.13, 1.4, 0.99},
                            place{"cores that lose little alone", true, 0.35, 0.2, 1.35, 0.98},
                            place{"two devices", false, 0.0, 0.0, 1.8, 1.25}}) {
        const std::vector<world::result> found = written(texts, p, run_mode::async, n_draft_auto);
        std::vector<double>              turns(texts.size());
        for (const int32_t k : {1, 2, 3, 4, 6}) {
            const std::vector<world::result> some = written(texts, p, run_mode::sync, k);
            for (size_t i = 0; i < texts.size(); ++i) {
                turns[i] = std::max(turns[i], some[i].speed());
            }
        }
        std::vector<double> gains;
        std::vector<double> of_turns;
        std::string         all = p.name;
        for (size_t i = 0; i < texts.size(); ++i) {
            gains.push_back(found[i].speed() * qwen(1));
            of_turns.push_back(found[i].speed() / turns[i]);
            all += "\n" + texts[i].name + " " + std::to_string(gains.back()) + " of plain, " +
                   std::to_string(of_turns.back()) + " of the best turns; passes ahead, by turn, at rest:";
            for (const int n : found[i].n_in) {
                all += " " + std::to_string(n);
            }
        }
        all += "\nmedians " + std::to_string(median(gains)) + " and " + std::to_string(median(of_turns));
        std::printf("%s\n", all.substr(all.rfind('\n') + 1).c_str());
        CHECK(median(gains) > p.least_gain, all);
        CHECK(median(of_turns) > p.least_of_turns, all);
        CHECK(*std::min_element(gains.begin(), gains.end()) > 0.75, all);
    }
}

TEST(real_texts_gain_in_any_order_and_with_what_a_draft_reads) {
    std::vector<text> texts = read_texts();
    std::mt19937      rng(1);
    for (const place & p : {place{"cores that lose much alone", true, 0.7, 0.13},
                            place{"cores that lose little alone", true, 0.35, 0.2}}) {
        std::vector<double> times;
        for (int i = 0; i < 12; ++i) {
            std::shuffle(texts.begin(), texts.end(), rng);
            const std::vector<double> some = times_with_reading(texts, p);
            times.insert(times.end(), some.begin(), some.end());
        }
        const auto   n_slow = std::count_if(times.begin(), times.end(), [](double t) { return t > 1.0 / 0.97; });
        const double mean   = std::accumulate(times.begin(), times.end(), 0.0) / double(times.size());
        const auto   note   = p.name + ": mean " + std::to_string(mean) + ", slow " + std::to_string(n_slow);
        std::printf("%s\n", note.c_str());
        CHECK(mean < 0.88, note);
        CHECK(double(n_slow) < 0.1 * double(times.size()), note);
        CHECK(*std::max_element(times.begin(), times.end()) < 1.0 / 0.75, note);
    }
}
