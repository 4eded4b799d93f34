// Ahead, by turn, or at rest? Simulated time, no model.
#include "planner_world.h"

using namespace duo_test;

namespace {

double best_of_turns(facts f) {
    double best = 0.0;
    for (const int32_t n : {1, 2, 3, 4, 6, 8, 11, 16}) {
        text_planner pl;
        pl.begin(params(run_mode::sync, n), n_branches);
        best = std::max(best, world(f).run(pl, 3000).speed());
    }
    return best;
}

std::string shares(const world::result & r) {
    return "ahead " + std::to_string(r.share(stance::ahead)) + " by turn " + std::to_string(r.share(stance::by_turn)) +
           " rest " + std::to_string(r.share(stance::rest));
}

} // namespace

TEST(stance_by_turn_under_contention) {
    for (const double c : check::cases({0.05, 0.3}, {0.05, 0.1, 0.2, 0.3})) {
        for (const double a : check::cases({0.7, 0.9}, {0.7, 0.8, 0.9})) {
            const facts  f{.v = sloped, .step_us = c * 10000.0, .a = a, .contention = 2.0};
            const double best = best_of_turns(f);
            text_planner pl;
            pl.begin(params(run_mode::async), n_branches);
            world w(f);
            w.run(pl, 2000);
            const auto r    = w.run(pl, 4000);
            const auto note = "c " + std::to_string(c) + " a " + std::to_string(a) + ": " +
                              std::to_string(r.speed() / best) + " of the best turns, " + shares(r);
            CHECK(r.share(stance::by_turn) > 0.9, note);
            CHECK(r.speed() > 0.93 * best, note);
        }
    }
}

TEST(stance_ahead_again_without_contention) {
    // Steps of a tenth and more, where running ahead is worth 10% and more.
    for (const double c : check::cases({0.1, 0.3}, {0.1, 0.2, 0.3})) {
        for (const double a : check::cases({0.8}, {0.8, 0.9})) {
            const facts  f{.v = sloped, .step_us = c * 10000.0, .a = a, .contention = 2.0};
            const double best = best_of_turns(f);
            text_planner pl;
            pl.begin(params(run_mode::async), n_branches);
            world w(f);
            w.run(pl, 3000);
            w.contention = 1.0;
            w.run(pl, 9000);
            const auto r    = w.run(pl, 1000);
            const auto note = "c " + std::to_string(c) + " a " + std::to_string(a) + ": " +
                              std::to_string(r.speed() / best) + " of the best turns, " + shares(r) + ", slowdown " +
                              std::to_string(pl.profile().passes().slowdown());
            CHECK(r.share(stance::ahead) > 0.9, note);
            CHECK(r.speed() > 1.05 * best, note);
        }
    }
}

TEST(stance_late_passes_change_nothing) {
    // One pass in twenty takes five times as long, for reasons of its own.
    const int n_seeds = check::is_small() ? 2 : check::by_scale(4, 8);
    for (const double contention : {1.0, 2.0}) {
        double with    = 0.0;
        double without = 0.0;
        int    n_moved = 0;
        for (uint64_t seed = 0; seed < uint64_t(n_seeds); ++seed) {
            for (const double late : {0.0, 0.05}) {
                text_planner pl;
                pl.begin(params(run_mode::async), n_branches);
                world w({.v          = sloped,
                         .step_us    = 500.0,
                         .a          = 0.9,
                         .contention = contention,
                         .late       = late,
                         .seed       = 1000 * seed});
                w.run(pl, 1000);
                const auto r = w.run(pl, 2000);
                (late > 0.0 ? with : without) += r.speed() * (1.0 + 4.0 * late);
                const auto right = contention > 1.0 ? stance::by_turn : stance::ahead;
                n_moved += late > 0.0 && r.share(right) < 0.9 ? 1 : 0;
            }
        }
        const auto note = "contention " + std::to_string(contention) + ": ";
        CHECK(n_moved <= std::max(2, n_seeds / 2), note + "texts in another stance: " + std::to_string(n_moved));
        CHECK(with > 0.93 * without, note + "their speed, the lost time taken out: " + std::to_string(with / without));
    }
}

TEST(stance_yardstick_is_taken_and_rarely) {
    // What passes cost alone has to be known, and the draft stands still for it.
    for (const double a : {0.6, 0.9}) {
        text_planner pl;
        pl.begin(params(run_mode::async), n_branches);
        world      w({.v = sloped, .step_us = 500.0, .a = a});
        const auto first = w.run(pl, 40);
        CHECK(first.n_alone >= 1 && first.n_alone <= 4, std::to_string(first.n_alone));
        CHECK(std::abs(pl.profile().pass_us(1, false) - sloped(1)) < 500.0);
        const auto r = w.run(pl, 5000);
        CHECK(r.n_alone >= 5 && r.n_alone <= 50, std::to_string(r.n_alone));
        CHECK_EQ(r.n_spoilt, 0, "no draft beside it");
        // It follows the machine, which is twice as slow now.
        w.v = [](int n) { return 2.0 * sloped(n); };
        w.run(pl, 3000);
        CHECK(std::abs(pl.profile().pass_us(1, false) - 2.0 * sloped(1)) < 0.2 * 2.0 * sloped(1),
              std::to_string(pl.profile().pass_us(1, false)));
    }
}

TEST(stance_of_one_mode_is_not_anothers) {
    // duo bench asks the same pair in several modes.
    text_planner pl;
    world        w({.v = sloped, .step_us = 200.0, .a = 0.9});
    for (int i = 0; i < 3; ++i) {
        for (const run_mode mode : {run_mode::plain, run_mode::sync, run_mode::async}) {
            pl.begin(params(mode), n_branches);
            w.run(pl, 30);
            const auto r = w.run(pl, 70);
            CHECK_EQ(r.n_drafted == 0, mode == run_mode::plain);
            CHECK_EQ(r.n_in[size_t(stance::by_turn)] > 0, mode == run_mode::sync);
        }
    }
}

// The draft stops where it is unsure, so turn-taking may bring more than an average acceptance tells.
TEST(running_ahead_is_compared_with_what_turn_taking_brought) {
    constexpr double expected = 6.1e-5; // tokens per microsecond by turn
    for (const double brought : {1.0, 1.3}) {
        planner plans;
        plans.expect({.shared = true});
        measure(plans.profile(), 20000, 200, 0.6, 0.9);
        plans.begin(params(run_mode::async), text_limits{});
        for (int i = 0; i < 1000 && plans.stance_now() == stance::by_turn; ++i) {
            plans.on_pass({.n_tokens = 3, .us = 3 / (brought * expected)});
        }
        REQUIRE(plans.stance_now() == stance::ahead);
        int n = 0;
        for (; plans.stance_now() == stance::ahead && n < 100; ++n) {
            plans.on_pass({.n_tokens = 3, .us = 3 / (1.15 * expected)});
        }
        CHECK_EQ(n, brought > 1.0 ? 12 : 100);
    }
}

// The draft is sure of its guesses in the next text, and wrong.
TEST(a_trial_of_running_ahead_ends_where_passes_bring_less_than_the_draft_says) {
    constexpr double plain = 1.0 / 20000.0;
    planner          plans;
    plans.expect({.shared = true});
    measure(plans.profile(), 20000, 200, 0.6, 0.9);
    plans.begin(params(run_mode::async), text_limits{});
    for (int i = 0; i < 1000 && plans.stance_now() == stance::by_turn; ++i) {
        plans.on_pass({.n_tokens = 3, .expected = 3.0, .us = 3 / 6.1e-5});
    }
    REQUIRE(plans.stance_now() == stance::ahead);
    int n = 0;
    for (; plans.stance_now() == stance::ahead && n < 100; ++n) {
        plans.on_pass({.n_tokens = 1, .expected = 3.0, .us = 1 / (0.54 * plain)});
    }
    CHECK(n <= 12, std::to_string(n));
}

TEST(the_next_run_knows_what_turn_taking_brought) {
    planner plans;
    plans.expect({.shared = true});
    measure(plans.profile(), 20000, 200, 0.6, 0.9, 1.4); // running ahead promises 7.5e-5
    plans.begin(params(run_mode::async), text_limits{});
    constexpr double brought = 1.3 * 6.1e-5;
    for (int i = 0; i < 500; ++i) {
        plans.on_pass({.n_tokens = 3, .us = 3 / brought});
    }
    REQUIRE(plans.stance_now() == stance::by_turn);
    planner next;
    next.expect({.shared = true});
    next.restore(plans.saved());
    CHECK(next.saved() == plans.saved());
    next.begin(params(run_mode::async), text_limits{});
    next.on_pass({.n_tokens = 3, .us = 3 / brought});
    CHECK(next.stance_now() == stance::by_turn);
}

TEST(a_draft_that_is_good_only_later_in_each_text_is_found) {
    text_planner pl; // on separate devices
    world        w({.v = sloped, .step_us = 500.0});
    const auto   text = [&](double later) {
        pl.begin(params(run_mode::async), n_branches);
        w.a = 0.0;
        w.run(pl, 200);
        w.a = later;
        return w.run(pl, 600);
    };
    for (int i = 0; i < 10; ++i) { // rests become as long as they can
        CHECK(text(0.0).share(stance::rest) > 0.5);
    }
    CHECK(text(0.95).share(stance::ahead) > 0.5);
}
