// A draft head's guesses are made of the target's states or, a step or more later, of its own. How much worse they are
// then is counted by their age, and the planner goes by it. Simulated time, no model.
#include "planner_world.h"
#include "scripted_model.h"
#include "verify/verify_text.h"

using namespace duo_test;

namespace {

float log_of(double p) {
    return float(std::log(p));
}

double falling(int age) {
    return 0.8 * std::pow(0.6, age);
}

double level(int /*age*/) {
    return 0.8;
}

text_planner planner_of(const plan_params & p) {
    return {{}, p, n_branches};
}

double best_of_turns(const facts & f) {
    double best = 0.0;
    for (const int32_t n : {1, 2, 3, 4, 6}) {
        text_planner pl = planner_of(params(run_mode::sync, n));
        best            = std::max(best, world(f).run(pl, 2000).speed());
    }
    return best;
}

} // namespace

TEST(chances_are_counted_by_age) {
    // It says the same of all its guesses, and is right less and less often.
    const double truth[] = {0.8, 0.65, 0.5, 0.35, 0.2};
    guess_record r;
    dice         d(3);
    CHECK(!r.has_ages());
    for (int i = 0; i < 3000; ++i) {
        for (int32_t age = 0; age < n_ages; ++age) {
            const bool right = d.chance(truth[age]);
            r.on_child(log_of(0.7), right, age + (age == n_ages - 1 ? i % 9 : 0));
            r.on_child(log_of(0.02), d.chance(0.02), age);
            r.on_guess(age, right, false, age);
        }
    }
    CHECK(r.has_ages());
    for (int32_t age = 0; age < n_ages; ++age) {
        const std::string note = "age " + std::to_string(age) + ": ";
        CHECK(std::abs(r.chance(log_of(0.7), age) - truth[age]) < 0.1,
              note + std::to_string(r.chance(log_of(0.7), age)));
        CHECK(std::abs(r.acceptance_of_age(age) - truth[age]) < 0.15, note + std::to_string(r.acceptance_of_age(age)));
        CHECK(r.chance(log_of(0.02), age) < 0.06, note);
    }
    CHECK_EQ(r.chance(log_of(0.7), 50), r.chance(log_of(0.7), n_ages - 1));
    CHECK_EQ(r.acceptance_of_age(50), r.acceptance_of_age(n_ages - 1));
    for (const float logp : {-1000.0f, -1e-9f, 0.0f, 0.5f}) {
        for (int32_t age = -1; age < 9; ++age) {
            CHECK(r.chance(logp, age) > 0.0 && r.chance(logp, age) < 1.0);
        }
    }
}

TEST(other_drafts_have_no_ages) {
    guess_record with;
    guess_record without;
    dice         d(4);
    for (int i = 0; i < 500; ++i) {
        const bool right = d.chance(0.6);
        with.on_child(log_of(0.5), right, i % 5);
        without.on_child(log_of(0.5), right);
        without.on_guess(0, right, false);
    }
    CHECK(!without.has_ages());
    CHECK_EQ(with.chance(log_of(0.5)), without.chance(log_of(0.5)));
    CHECK(std::abs(with.chance(log_of(0.5), 2) - with.chance(log_of(0.5))) < 0.1); // all ages are alike here
}

TEST(ages_reach_the_pass_and_change_with_better_estimates) {
    pair_profile p;
    for (int i = 0; i < 400; ++i) {
        p.guesses(guess_kind::noise).on_child(log_of(0.6), i % 10 < 8, 0);
        p.guesses(guess_kind::noise).on_child(log_of(0.6), i % 10 < 3, 3);
    }
    token_tree t;
    t.reset(1, 7);
    t.insert(2, 1, 10, log_of(0.6), 3);
    t.insert(3, 1, 11, log_of(0.3), 3);
    pass_tree pass;
    pass.begin(t, p.guesses(guess_kind::noise), 0.0);
    const double old = pass.nodes()[0].chance;
    CHECK_EQ(pass.nodes()[0].age, 3);
    CHECK_EQ(t.likeliest_child(0), 1);
    t.revise(2, log_of(0.7), 0); // the true states favour the other child
    t.revise(1, log_of(0.2), 0);
    CHECK_EQ(t.likeliest_child(0), 2);
    pass.begin(t, p.guesses(guess_kind::noise), 0.0);
    CHECK_EQ(pass.nodes()[1].age, 0);
    CHECK(pass.nodes()[1].chance > old + 0.2);
    CHECK_EQ(pass.best_path().front(), 1);
}

namespace {

// What is learned when the draft tells two children of the root, first of one age, then of another, and the target
// chooses the second one, again and again.
guess_record learned(const sampling_params & sampling, std::array<float, 2> first, std::array<float, 2> then,
                     std::array<int16_t, 2> ages) {
    const scripted_model model(behaviour{});
    guess_record         r;
    for (int i = 0; i < 100; ++i) {
        request req;
        req.prompt   = {3, 1, 2};
        req.id       = request_node(1);
        req.sampling = sampling;
        verify_text text(model);
        text.begin(req);
        text.guesses().on_node({.guess = false, .id = 1, .parent = req.id, .token = 2}, text.tokens(), r);
        for (size_t k = 0; k < 2; ++k) {
            const auto token = token_id(10 + k);
            text.guesses().on_node({.id = 2 + k, .parent = 1, .token = token, .logp = first[k], .rank = int16_t(k)},
                                   text.tokens(), r);
            text.guesses().on_node(
                {.guess = false, .id = 2 + k, .parent = 1, .token = token, .logp = then[k], .age = ages[k]},
                text.tokens(), r);
        }
        text.guesses().grow(text.tokens(), r, 0.0, 8);
        text.begin_walk(stance::ahead);
        CHECK(!text.step(11, r), "nothing was verified");
    }
    return r;
}

} // namespace

TEST(each_child_is_counted_by_its_own_age) {
    const float        equal = log_of(0.45);
    const guess_record r     = learned({.temp = 0.0f}, {equal, equal}, {equal, equal}, {2, 0});
    CHECK(r.chance(equal, 0) > 0.8, std::to_string(r.chance(equal, 0)));
    CHECK(r.chance(equal, 2) < 0.2, std::to_string(r.chance(equal, 2)));
    CHECK(r.acceptance_of_age(2) < 0.2, "of two equal ones the first is the best guess");
}

// Blocks and heads tell better estimates of what they have told before.
TEST(the_best_guess_is_that_of_the_last_estimates) {
    for (const int16_t age : {no_age, int16_t(0)}) {
        const guess_record better =
            learned({.temp = 0.0f}, {log_of(0.6), log_of(0.3)}, {-69.0f, log_of(0.8)}, {age, age});
        CHECK(better.acceptance(0) > 0.9, std::to_string(better.acceptance(0)));
        const guess_record worse =
            learned({.temp = 0.0f}, {log_of(0.6), log_of(0.3)}, {log_of(0.6), log_of(0.1)}, {age, age});
        CHECK(worse.acceptance(0) < 0.1, std::to_string(worse.acceptance(0)));
    }
}

// The chance of a draw is that all before it were refused, and it was not.
TEST(the_first_draw_is_the_one_that_is_tried_first) {
    const sampling_params draws{.temp = 0.8f, .accept = accept_rule::rejection};
    const guess_record    r = learned(draws, {log_of(0.2), log_of(0.6)}, {log_of(0.2), log_of(0.6)}, {no_age, no_age});
    CHECK(r.acceptance(0) < 0.1, std::to_string(r.acceptance(0)));
}

// In turn-taking a guess that is not made is not counted either. So a few wrong ones at first, which chance brings to
// one text in three, must not make the guesses short for ever; many must.
TEST(a_few_wrong_guesses_are_not_the_last) {
    guess_record r;
    for (int i = 0; i < 100; ++i) {
        r.on_guess(0, i % 10 < 6, false, 0);
    }
    for (int i = 0; i < 3; ++i) {
        r.on_guess(1, false, false, 1);
    }
    CHECK(r.acceptance_of_age(1) < 0.2 && r.hope_of_age(1) > 0.45, std::to_string(r.hope_of_age(1)));
    for (int i = 0; i < 60; ++i) {
        r.on_guess(1, false, false, 1);
    }
    CHECK(r.hope_of_age(1) < 0.2, std::to_string(r.hope_of_age(1)));
    for (uint64_t seed = 1; seed <= 8; ++seed) {
        text_planner pl = planner_of(params(run_mode::sync));
        world        w({.v = sloped, .step_us = 1500.0, .a_of_age = [](int) { return 0.6; }, .seed = seed});
        w.run(pl, 200);
        CHECK(pl.n_ahead() > 2, "seed " + std::to_string(seed) + ": " + std::to_string(pl.n_ahead()));
    }
}

// A head that guesses well from its own states runs ahead of the target; one that does not takes turns if both slow
// each other down. Neither is much slower than the best turn-taking.
TEST(look_ahead_is_used_where_it_pays) {
    for (const double c : check::cases({0.1, 0.3})) {
        for (const double contention : check::cases({1.0, 1.3})) {
            for (const bool falls : {false, true}) {
                const facts  f{.v          = sloped,
                               .step_us    = c * 10000.0,
                               .a          = 0.8,
                               .contention = contention,
                               .a_of_age   = falls ? falling : level};
                text_planner pl = planner_of(params(run_mode::async));
                world        w(f);
                w.run(pl, 1000);
                const auto   r    = w.run(pl, 2000);
                const double best = std::max(best_of_turns(f), 1.0 / sloped(1));
                const auto   note = "c " + std::to_string(c) + " contention " + std::to_string(contention) +
                                  (falls ? ", falling" : ", level") + ": " + std::to_string(r.speed() / best) +
                                  " of the best turns, ahead " + std::to_string(r.share(stance::ahead));
                CHECK(r.speed() > 0.95 * best, note);
                CHECK(contention > 1.0 || r.share(stance::ahead) > 0.9, note);
                CHECK(contention == 1.0 || !falls || r.share(stance::by_turn) > 0.9, note);
                CHECK(contention > 1.0 || falls || r.speed() > 1.05 * best, note);
            }
        }
    }
}
