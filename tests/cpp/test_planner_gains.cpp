// What a draft has saved earlier texts decides whether it is tried in the next one. Simulated time, no model.
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
        for (int i = 0; i < n_passes; ++i) {
            g.on_pass(n_each, us, 100.0);
        }
        g.begin_text();
    };
    text(5, 3, 100.0);
    CHECK(!g.known() && !g.promise(), "five passes tell nothing");
    text(20, 2, 100.0); // half of the time is saved
    CHECK(g.known() && g.promise());
    CHECK(std::abs(g.saved_tokens(100) - (10.0 + 50.0) / 2) < 1e-9);
    text(200, 1, 120.0); // costs a fifth, but only until the draft rests
    CHECK(std::abs(g.saved_tokens(100) - (10.0 + 50.0 - 0.2 * 12) / 3) < 1e-9);
    for (int i = 0; i < 8; ++i) {
        text(20, 1, 150.0);
    }
    CHECK(!g.promise() && g.saved_tokens(1) < 0.0, "only the last eight count");
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

TEST(a_draft_that_was_poor_at_first_gets_its_chance) {
    writer w;
    for (int i = 0; i < 6; ++i) {
        w.gain(0.2);
    }
    double last = 0.0;
    for (int i = 0; i < 16; ++i) {
        last = w.gain(0.9);
    }
    CHECK(last > 1.1, std::to_string(last));
}

TEST(a_draft_that_is_always_poor_costs_little) {
    writer w;
    double us = 0.0;
    for (int i = 0; i < 40; ++i) {
        us += 1.0 / w.gain(0.1) / 40;
    }
    CHECK(us < 1.04, std::to_string(us));
}
