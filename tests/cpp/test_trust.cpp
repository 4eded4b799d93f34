// How far a draft's estimates are trusted: what outcomes say of it. What turn-taking does with it: test_planner.cpp.
#include <cmath>

#include "check.h"
#include "plan/guess_record.h"
#include "plan/trust.h"
#include "random.h"

using namespace duo;
using namespace duo_test;

namespace {

// n guesses with random estimates, which are right as often as estimate^power.
void guess(trust & t, dice & d, double power, int n) {
    for (int i = 0; i < n; ++i) {
        const double log_estimate = -0.01 * d.between(1, 200);
        t.on_guess(log_estimate, 1e-6 * d.below(1000000) < std::exp(power * log_estimate));
    }
}

void the_power_of_the_outcomes_is_found() {
    for (const double power : {0.1, 0.3, 1.0, 2.5}) {
        dice  d(7);
        trust t;
        guess(t, d, power, 1500);
        CHECK(t.power() > 0.75 * power && t.power() < 1.3 * power);
    }
}

void a_change_of_the_text_is_followed() {
    dice  d(3);
    trust t;
    guess(t, d, 0.2, 1000);
    guess(t, d, 1.5, 1000);
    CHECK(t.power() > 1.1 && t.power() < 2.0);
}

void few_guesses_change_little() {
    trust t;
    t.on_guess(-1.0, true);
    CHECK(t.power() > 0.7 && t.power() < 1.0);
    trust u;
    u.on_guess(-0.1, false);
    CHECK(u.power() > 1.0 && u.power() < 1.5);
}

void any_estimate_is_borne() {
    trust t;
    for (int i = 0; i < 10000; ++i) {
        for (const double x : {0.0, -1e-9, -60.0, -1e30}) {
            t.on_guess(x, i % 2 == 0);
            CHECK(t.power() >= trust::least_power && t.power() <= trust::most_power && std::isfinite(t.weight()));
        }
    }
}

void a_path_is_as_good_as_its_chance_says() {
    const trust half = trust::restored(0.5, 10.0);
    CHECK(std::abs(half.estimate_for(0.3) - 0.09) < 1e-9);
    CHECK(half.estimate_for(0.0) == 0.0 && half.estimate_for(2.0) == 1.0);
    CHECK(trust::restored(1e9, -1.0).power() == trust::most_power && trust::restored(1e9, -1.0).weight() == 0.0);
}

// A draft that is the target itself is always right where the target is greedy, whatever its chances.
void a_record_learns_it_from_choices() {
    guess_record       r;
    dice               d(5);
    const guess_record fresh;
    for (int i = 0; i < 300; ++i) {
        const float said[] = {float(std::log(0.01 * d.between(20, 95)))};
        r.on_choice(said, 0);
    }
    CHECK(fresh.trusted().power() == 1.0);
    CHECK(r.trusted().power() < 0.2);
    CHECK(r.trusted().estimate_for(0.4) < 0.02);
}

} // namespace

int main() {
    the_power_of_the_outcomes_is_found();
    a_change_of_the_text_is_followed();
    few_guesses_change_little();
    any_estimate_is_borne();
    a_path_is_as_good_as_its_chance_says();
    a_record_learns_it_from_choices();
    return 0;
}
