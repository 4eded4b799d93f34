// What a draft has saved earlier texts decides whether it is tried in the next one. Simulated time, no model.
#include <algorithm>
#include <cmath>

#include "plan/text_gains.h"
#include "planner_world.h"

using namespace duo_test;

namespace {

constexpr int n_tokens = 64;

// A published pair on two cores that both models share: a text as good as `a` says, 60 tokens of prompt.
facts text_of(double a, uint64_t seed) {
    facts f{.v = [](int n) { return 66000.0 * (n <= 4 ? 1.0 + 0.09 * (n - 1) : 1.27 + 0.17 * (n - 4)); }};
    f.step_us    = 23000.0;
    f.a          = a;
    f.contention = 2.0;
    f.prompt_us  = 60 * 13800.0;
    f.reading_us = 60 * 4700.0;
    f.seed       = seed;
    return f;
}

// Writes texts one after the other, each in a world of its own.
struct writer {
    text_planner pl{prior_of(text_of(0.7, 1)), params(run_mode::async), n_branches};
    uint64_t     n_texts = 0;

    // Its time without a draft / its time.
    double gain(double a) {
        const facts f = text_of(a, ++n_texts);
        pl.begin(params(run_mode::async), n_branches);
        world      w(f);
        const auto r = w.write(pl, n_tokens);
        return (f.prompt_us + r.n_tokens * f.v(1)) / (f.prompt_us + r.us);
    }
};

} // namespace

TEST(gains_of_texts_count_alike_however_long_they_were) {
    text_gains g;
    const auto text = [&g](int n_passes, int32_t n_each, double us) {
        g.on_pass(n_each, 1e6, 100.0); // with the reading, which is priced apart
        for (int i = 0; i < n_passes; ++i) {
            g.on_pass(n_each, us, 100.0);
        }
        g.begin_text();
    };
    const auto saved = [&g] { return g.saved_passes(64); };
    text(2, 3, 100.0);
    CHECK(!g.known() && !g.promise(), "six tokens tell nothing");
    text(20, 2, 100.0); // half of the time is saved
    CHECK(g.known() && g.promise());
    CHECK(std::abs(saved() - (3 * 6.4 + 32.0) / 4) < 1e-9);
    text(200, 1, 120.0); // costs a fifth, but only until the draft rests
    CHECK(std::abs(saved() - (3 * 6.4 + 32.0 - 0.2 * 12) / 5) < 1e-9);
    CHECK(g.saved_passes(4096) < 4096 * 0.11, "what is assumed does not grow with the length");

    const auto numbers = g.saved();
    CHECK(text_gains::restored(numbers).saved() == numbers);
    CHECK_EQ(text_gains::restored(numbers).saved_passes(64), saved());
    for (const double bad : {-1.0, 9.0, 1e300}) {
        auto other = numbers;
        other[0]   = bad;
        CHECK(!text_gains::restored(other).known());
    }

    for (int i = 0; i < 8; ++i) {
        text(20, 1, 200.0);
    }
    CHECK(!g.promise(), "only the last eight count");
    g.on_pass_without(70.0);
    g.on_pass_without(30.0);
    CHECK_EQ(g.us_without(), 100.0);
    g.on_pass(1, 100.0, 100.0);
    CHECK_EQ(g.us_without(), 0.0);
}

TEST(a_hard_text_does_not_silence_the_draft_in_the_next_ones) {
    writer w;
    CHECK(w.gain(0.9) > 1.1);
    w.gain(0.3);
    w.gain(0.3);
    for (int i = 0; i < 4; ++i) {
        const double gain = w.gain(0.9);
        CHECK(gain > 1.1, "text " + std::to_string(i) + ": " + std::to_string(gain));
    }
}

TEST(nor_does_one_at_the_beginning_or_in_an_earlier_run) {
    for (const bool saves : {false, true}) {
        writer w;
        writer next;
        if (saves) {
            w.gain(0.9);
            w.gain(0.3);
            next.pl.restore(w.pl.saved());
        } else {
            w.gain(0.3);
        }
        writer &            now = saves ? next : w;
        std::vector<double> gains;
        for (int i = 0; i < 4; ++i) {
            gains.push_back(now.gain(0.9));
        }
        std::string note = saves ? "in an earlier run:" : "at the beginning:";
        for (const double x : gains) {
            note += " " + std::to_string(x);
        }
        CHECK(std::count_if(gains.begin(), gains.end(), [](double x) { return x > 1.1; }) >= 3, note);
    }
}

TEST(a_draft_that_reads_little_must_still_pay_for_its_reading) {
    writer w;
    w.gain(0.9);
    w.gain(0.9);
    w.pl.begin(params(run_mode::async), n_branches);
    const auto & worth = w.pl.worth();
    const auto   us    = int64_t(0.6 * worth.saves(n_tokens)); // of its reading
    CHECK(us > 0 && worth.pays(us, n_tokens, 0));
    CHECK(!worth.pays(us, n_tokens, 0, 0.31), "it saves a third of what one saves that reads all");
    CHECK(worth.pays(us, n_tokens, 100 * us, 0.31), "but it may be tried");
}

// Its texts do not say what the draft brings to others.
TEST(texts_of_fixed_lengths_and_without_a_draft_are_not_counted) {
    writer w;
    w.gain(0.9);
    for (int i = 0; i < 8; ++i) {
        const facts f = text_of(0.1, 100 + uint64_t(i));
        w.pl.begin(params(i < 4 ? run_mode::sync : run_mode::plain, 8, i < 4 ? 8 : 0), n_branches);
        world(f).write(w.pl, n_tokens);
    }
    const auto & g = w.pl.profile().gains(guess_kind::noise);
    w.pl.begin(params(run_mode::async), n_branches);
    CHECK_EQ(g.saved()[0], 1.0);
    CHECK(g.promise());
}

TEST(a_draft_that_was_poor_at_first_gets_its_chance) {
    writer w;
    for (int i = 0; i < 6; ++i) {
        w.gain(0.2);
    }
    int n_good = 0;
    for (int i = 0; i < 16; ++i) {
        n_good += w.gain(0.9) > 1.1 ? 1 : 0;
    }
    CHECK(n_good >= 8, std::to_string(n_good));
}

TEST(a_draft_that_is_always_poor_costs_little) {
    writer w;
    double first = 0.0;
    double later = 0.0;
    for (int i = 0; i < 120; ++i) {
        (i < 40 ? first : later) += 1.0 / w.gain(0.1) / (i < 40 ? 40 : 80);
    }
    CHECK(first < 1.04, std::to_string(first));
    CHECK(later < 1.02, std::to_string(later));
}
