// The first tokens of the first text, on cores that both models share: nothing was measured yet, and nobody waits for
// the planner to learn. Simulated time, no model.
#include "planner_world.h"

using namespace duo_test;

namespace {

// Duo's kernels on two cores.
double packed(int n) {
    return 20000.0 * (n <= 4 ? 1.0 + 0.05 * (n - 1) : 1.15 + 0.06 * (n - 4));
}

struct way {
    run_mode mode;
    int32_t  n = n_draft_auto;
};

// A planner that is given these times, at the beginning of its first text.
text_planner begun(const pair_prior & prior, const way & w) {
    return {prior, params(w.mode, w.n), n_branches};
}

text_planner begun(const facts & f) {
    return begun(prior_of(f), {run_mode::async});
}

// Mean microseconds for a text's first n_tokens, each text of a pair that is new.
double first_us(const facts & f, const way & w, int n_tokens, double wrong, double wrong_step, int n_texts) {
    double sum = 0.0;
    for (int i = 0; i < n_texts; ++i) {
        text_planner pl = begun(prior_of(f, wrong, wrong_step), w);
        facts        g  = f;
        g.seed          = 1000 + uint64_t(i);
        world      x(g);
        const auto r = x.write(pl, n_tokens);
        sum += r.us * n_tokens / r.n_tokens;
    }
    return sum / n_texts;
}

double best_us(const facts & f, int n_tokens, int n_texts) {
    double best = first_us(f, {run_mode::plain}, n_tokens, 1.0, 1.0, n_texts);
    for (const int32_t k : {1, 2, 3, 4, 6, 8}) {
        best = std::min(best, first_us(f, {run_mode::sync, k}, n_tokens, 1.0, 1.0, n_texts));
    }
    return best;
}

// How near the default comes to the best way, in texts that begin with expected times that are off.
double share_of_best(const facts & f, int n_tokens) {
    const int    n_texts = check::n_cases(30);
    const double best    = best_us(f, n_tokens, n_texts);
    double       worst   = 1.0;
    for (const double wrong : {0.8, 1.25}) {
        worst = std::min(worst, best / first_us(f, {run_mode::async}, n_tokens, wrong, 1.0 / wrong, n_texts));
    }
    return worst;
}

std::string note(const facts & f, double share) {
    return "c " + std::to_string(f.step_us / f.v(1)) + " a " + std::to_string(f.a) + " contention " +
           std::to_string(f.contention) + ": " + std::to_string(share) + " of the best";
}

} // namespace

TEST(first_tokens_cost_little_more_than_the_best) {
    for (const auto v : {&packed, &stock}) {
        for (const double c : check::cases({0.01, 0.4}, {0.01, 0.2, 0.4})) {
            for (const double a : check::cases({0.5, 0.7})) {
                const facts  f{.v = v, .step_us = c * v(1), .a = a, .contention = 1.8};
                const double share = share_of_best(f, 64);
                CHECK(share > (check::is_small() ? 0.9 : 0.98), note(f, share));
            }
        }
    }
}

// That a draft is better than most is found out while the text is written.
TEST(first_tokens_of_a_very_good_draft) {
    for (const double c : check::cases({0.01, 0.2, 0.4})) {
        const facts  f{.v = packed, .step_us = c * packed(1), .a = 0.9, .contention = 1.8};
        const double share = share_of_best(f, 64);
        CHECK(share > (check::is_small() ? 0.85 : 0.93), note(f, share));
    }
}

// In a longer text running ahead is tried, which costs most where it nearly wins, or where it is far slower.
TEST(first_trial_of_running_ahead_costs_little) {
    for (const double contention : check::cases({1.3, 4.0}, {1.3, 1.8, 4.0})) {
        for (const double c : check::cases({0.01, 0.4}, {0.01, 0.2, 0.4})) {
            const facts  f{.v = packed, .step_us = c * packed(1), .a = 0.7, .contention = contention};
            const double share = share_of_best(f, 256);
            CHECK(share > (check::is_small() ? 0.9 : 0.96), note(f, share));
        }
    }
}

TEST(first_tokens_begin_by_turn_on_shared_cores) {
    const facts        cheap{.v = packed, .step_us = 200.0, .a = 0.7};
    const text_planner pl = begun(cheap);
    CHECK(pl.stance_now() == stance::by_turn);
    CHECK(pl.worth().begins_late());

    // Where no width can pay the draft is not even begun.
    const facts dear{.v = stock, .step_us = 4000.0, .a = 0.7};
    CHECK(begun(dear).stance_now() == stance::rest);

    // On devices of their own both begin at once.
    const text_planner apart = begun(pair_prior{}, {run_mode::async});
    CHECK(apart.stance_now() == stance::ahead);
    CHECK(!apart.worth().begins_late());
}

TEST(first_tokens_then_ahead_where_that_is_faster) {
    // The cores are shared, but the two do not slow each other down much: the trial is won and kept.
    const facts  f{.v = packed, .step_us = 8000.0, .a = 0.8, .contention = 1.05};
    text_planner pl = begun(f);
    world        w(f);
    w.run(pl, 400);
    const auto r = w.run(pl, 200);
    CHECK(r.share(stance::ahead) > 0.9, "ahead " + std::to_string(r.share(stance::ahead)));
    // And left again when they do.
    w.contention = 2.5;
    w.run(pl, 100);
    CHECK(w.run(pl, 200).share(stance::by_turn) > 0.9);
}

TEST(first_tokens_of_the_next_run_begin_where_this_one_ended) {
    const facts  f{.v = packed, .step_us = 8000.0, .a = 0.8, .contention = 1.05};
    text_planner pl = begun(f);
    world        w(f);
    w.run(pl, 400);
    REQUIRE(pl.stance_now() == stance::ahead);
    text_planner next;
    next.expect(prior_of(f));
    next.restore(pl.saved());
    next.begin(params(run_mode::async), n_branches);
    CHECK(next.stance_now() == stance::ahead);
    CHECK(std::abs(next.profile().pass_us(2, true) - pl.profile().pass_us(2, true)) < 1.0);
    CHECK(next.saved().size() == pl.saved().size());
    next.forget();
    next.begin(params(run_mode::async), n_branches);
    CHECK(next.stance_now() == stance::by_turn);
    // Other lists change nothing.
    text_planner none;
    for (const std::vector<double> & bad :
         {std::vector<double>{}, std::vector<double>(7, 1.0), std::vector<double>(none.saved().size() + 9, 0.5)}) {
        none.restore(bad);
        CHECK_EQ(none.saved(), planner().saved());
    }
}

TEST(first_tokens_reading_must_pay) {
    const facts  f{.v = packed, .step_us = 4000.0, .a = 0.7};
    text_planner pl = begun(f);
    CHECK(pl.worth().pays(10000, 64, 0));
    CHECK(!pl.worth().pays(10000000, 64, 1000000), "ten seconds of reading for 64 tokens");
    CHECK(pl.worth().pays(10000000, 5000, 1000000));
}

// N-grams of the text cost no step of the draft. It makes no guesses where they promise more than it does.
TEST(first_tokens_sure_ngrams_spare_the_draft) {
    const plan_params         p = params(run_mode::async, n_draft_auto);
    const tree_shape          none;
    const std::vector<double> sure{0.97, 0.95, 0.93, 0.91, 0.9, 0.88};
    const auto                spares = [&](double step_us, text_share t) {
        const facts f{.v = packed, .step_us = step_us};
        planner     pl;
        pl.expect(prior_of(f));
        pl.begin(p);
        REQUIRE(pl.stance_now() == stance::by_turn);
        t.plan  = t.plan == nullptr ? &p : t.plan;
        t.shape = &none;
        return pl.spares(t);
    };
    CHECK(spares(4000.0, {.n_most = 16, .repeats = sure}));
    CHECK(!spares(4000.0, {.n_most = 16, .fixed = true, .repeats = sure}), "what the user has fixed stays");
    CHECK(!spares(4000.0, {.n_most = 0, .repeats = sure}), "no room for them");
    CHECK(!spares(4000.0, {.n_most = 16, .repeats = std::vector<double>{0.5, 0.25, 0.12, 0.06}}));
    CHECK(!spares(4000.0, {.n_most = 16}));
    plan_params least = p;
    least.n_min       = 2;
    CHECK(!spares(4000.0, {.plan = &least, .n_most = 16, .repeats = sure}));
    // A step costs next to nothing, and the only n-gram is short.
    CHECK(spares(4000.0, {.n_most = 16, .repeats = std::span(sure).first(1)}));
    CHECK(!spares(100.0, {.n_most = 16, .repeats = std::span(sure).first(1)}), "the draft promises more");
}
