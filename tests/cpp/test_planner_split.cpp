// How two models that work at once split many cores. Simulated time, no model.
#include "planner_world.h"

using namespace duo_test;

namespace {

constexpr int32_t n_cores = 16;

std::vector<core_split> ways() {
    std::vector<core_split> all;
    for (const int32_t n : {1, 2, 4, 8}) {
        all.push_back({.target = n_cores - n, .draft = n});
    }
    return all;
}

pair_prior prior_of(const facts & f, std::vector<core_split> splits, size_t likely) {
    pair_prior p = prior_of(f);
    p.splits     = std::move(splits);
    p.split      = likely;
    return p;
}

// Running ahead all the time with this split and no other; tokens per microsecond.
double speed_of(const facts & f, const core_split & split) {
    text_planner pl;
    pl.expect(prior_of(f, {split}, 0));
    pl.begin(params(run_mode::async), n_branches);
    world w(f);
    w.run(pl, 1500);
    return w.run(pl, 1500).speed();
}

} // namespace

TEST(the_fastest_split_is_found) {
    // A team that is half as large is not half as fast: else turn-taking would always win.
    struct pair {
        double c;
        double parallel;
        double parallel_draft;
    };
    for (const pair & p : {pair{0.3, 0.1, 0.1}, pair{0.3, 0.4, 0.05}, pair{0.15, 0.4, 0.4}, pair{0.4, 0.3, 0.05}}) {
        const facts f{.v              = flat,
                      .step_us        = p.c * 10000.0,
                      .a              = 0.85,
                      .n_cores        = n_cores,
                      .parallel       = p.parallel,
                      .parallel_draft = p.parallel_draft};
        double      best = 0.0;
        std::string all  = "c " + std::to_string(p.c);
        for (const core_split & s : ways()) {
            const double speed = speed_of(f, s);
            all += ", " + std::to_string(s.draft) + ": " + std::to_string(1e6 * speed);
            best = std::max(best, speed);
        }
        for (const size_t likely : {0, 3}) {
            text_planner pl;
            pl.expect(prior_of(f, ways(), likely));
            pl.begin(params(run_mode::async), n_branches);
            world w(f);
            w.run(pl, 4000);
            const auto r = w.run(pl, 2000);
            CHECK(r.speed() > 0.95 * best, all + "; from split " + std::to_string(likely) + ": " +
                                               std::to_string(1e6 * r.speed()) + ", ahead " +
                                               std::to_string(r.share(stance::ahead)));
        }
    }
}

TEST(split_search_stays_within_the_given_splits) {
    split_search one;
    one.begin(1, 0);
    for (int i = 0; i < 1000; ++i) {
        CHECK(!one.on_pass(true) && !one.on_trial());
    }
    CHECK(!one.move_on(true));
    CHECK_EQ(one.now(), size_t(0));
    one.restore(7, 100);
    CHECK_EQ(one.best(), size_t(0), "a split of another machine");

    // Each other split is tried, from either end; a trial that the times call hopeless is short.
    for (const size_t first : {size_t(0), size_t(2)}) {
        split_search s;
        s.begin(3, first);
        int n_trial = 0;
        int n_all   = 0;
        for (int i = 0; i < 5000; ++i) {
            if (s.on_trial()) {
                CHECK(s.now() < 3 && s.best() == first);
                s.on_trial_pass(1, 1.0, 10.0, 1.0, 0.5, 1.0);
                ++n_trial;
            } else {
                s.on_pass(i % 2 == 0);
            }
            ++n_all;
        }
        CHECK(n_trial > 0 && n_trial < n_all / 50, std::to_string(n_trial));
        CHECK(s.move_on(first == 0) && s.now() == 1 && s.best() == 1);
    }
}
