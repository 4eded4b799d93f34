// How often guesses are right: by level, by the draft's own estimate, by the kind of text.
#include <algorithm>
#include <cmath>

#include "check.h"
#include "plan/pair_profile.h"
#include "random.h"

using namespace duo;
using namespace duo_test;

namespace {

bool near(double x, double want, double tolerance) {
    return std::abs(x - want) <= tolerance * std::abs(want);
}

} // namespace

TEST(acceptance_by_level) {
    guess_record p;
    dice         d(1);
    CHECK(p.acceptance(0) > 0.3 && p.acceptance(0) < 0.9);
    CHECK_EQ(p.acceptance(5), p.acceptance(0)); // nothing seen: as the one before
    const double want[] = {0.9, 0.5, 0.8};
    double       mean[3]{};
    double       fresh = 0.0;
    for (int i = 0; i < 4000; ++i) {
        p.on_guess(0, d.chance(i % 2 == 0 ? 0.98 : 0.82), i % 2 != 0);
        p.on_guess(1, d.chance(want[1]), false);
        p.on_guess(2, d.chance(want[2]), true);
        for (int32_t j = 0; j < 3; ++j) {
            mean[j] += p.acceptance(j) / 4000;
        }
        fresh += p.acceptance_fresh() / 4000;
    }
    for (int32_t j = 0; j < 3; ++j) {
        CHECK(near(mean[j], want[j], 0.03), std::to_string(mean[j]));
    }
    CHECK(near(fresh, 0.82, 0.03), std::to_string(fresh));
    CHECK(near(p.acceptance(3), p.acceptance(2), 1e-9));
    p.on_guess(-1, true, true);
    p.on_guess(n_draft_cap, true, true);
    CHECK_EQ(p.acceptance(1000), p.acceptance(n_draft_cap - 1));
}

TEST(chance_is_calibrated) {
    // A draft that is far too sure of itself, and one that is too modest.
    for (const double power : {0.3, 1.0, 3.0}) {
        guess_record p;
        dice         d(7);
        const double says[] = {0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98};
        double       sum[7]{};
        CHECK(near(p.chance(std::log(0.5f)), 0.5, 0.01)); // to begin with it is believed
        for (int i = 0; i < 6000; ++i) {
            for (int k = 0; k < 7; ++k) {
                const double truth = 1.0 - std::pow(1.0 - says[k], power);
                p.on_child(float(std::log(says[k])), d.chance(truth));
                sum[k] += i < 2000 ? 0.0 : p.chance(float(std::log(says[k]))) / 4000;
            }
        }
        for (int k = 0; k < 7; ++k) {
            const double truth = 1.0 - std::pow(1.0 - says[k], power);
            // The draft's own word keeps a weight of 4 in 104.
            const double want = (100.0 * truth + 4.0 * says[k]) / 104.0;
            CHECK(std::abs(sum[k] - std::clamp(want, 0.001, 0.995)) < 0.01, "says " + std::to_string(says[k]) +
                                                                                " truth " + std::to_string(truth) +
                                                                                ": " + std::to_string(sum[k]));
        }
    }
    guess_record p;
    for (const float logp : {-1000.0f, -69.0f, -1e-9f, 0.0f, 0.5f}) {
        CHECK(p.chance(logp) > 0.0 && p.chance(logp) < 1.0);
    }
}

// What a rule of acceptance teaches says nothing about the others: a guess is accepted more often under most of them.
TEST(each_kind_of_text_has_its_own_record) {
    sampling_params s{.temp = 0.0f};
    CHECK(s.kind() == guess_kind::greedy);
    s.accept = accept_rule::typical;
    CHECK(s.kind() == guess_kind::greedy, "without a temperature all rules are the same");
    s.temp = 0.8f;
    CHECK(s.kind() == guess_kind::typical);
    s.accept = accept_rule::top_n;
    CHECK(s.kind() == guess_kind::top_n);
    s.accept = accept_rule::rejection;
    CHECK(s.kind() == guess_kind::rejection);
    s.accept = accept_rule::noise;
    CHECK(s.kind() == guess_kind::noise);
    pair_profile p;
    const double before = p.guesses(guess_kind::noise).acceptance(0);
    for (int i = 0; i < 100; ++i) {
        const float said[] = {-0.3f, -2.0f}; // of which the draft is sure
        p.guesses(guess_kind::rejection).on_guess(0, false, true);
        p.guesses(guess_kind::rejection).on_choice(said, -1);
    }
    CHECK(p.guesses(guess_kind::rejection).acceptance(0) < 0.1);
    CHECK(p.guesses(guess_kind::rejection).sharp().power() < 1.0);
    CHECK_EQ(p.guesses(guess_kind::noise).acceptance(0), before);
    CHECK_EQ(p.guesses(guess_kind::noise).sharp().order(), 0);
}
