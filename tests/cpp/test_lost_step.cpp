// A step of the draft ends when the text goes another way.
#include "asks.h"

using namespace duo_test;

TEST(a_step_stops_when_none_of_its_nodes_is_needed) {
    int n_went_on = 0;
    for (int64_t hang_at = 3; hang_at < 15; ++hang_at) {
        const language lang{.seed = 4};
        scripted_model t(behaviour{.lang = lang, .n_branch = 4, .pass_us = 2000});
        // All of its guesses are wrong. The step that hangs may be one that evaluates the root, which is always needed.
        scripted_model m(behaviour{.lang = lang, .n_branch = 16, .agree = 0.0, .hang_at = hang_at});
        pipeline       line(&t, &m, {});
        const ask      q{.n_predict = 25};
        auto           text = line.begin(q.make());
        answer         a;
        read_some(line, *text, a, size_t(-1));
        check_same(a, reference(lang, 512, q), std::to_string(hang_at));
        CHECK_EQ(a.warning, "");
        n_went_on += m.hanging() && m.n_decoded > hang_at + 3 ? 1 : 0;
    }
    CHECK(n_went_on >= 6, std::to_string(n_went_on));
}

TEST(a_text_that_ends_stops_the_draft) {
    const language lang{.seed = 4};
    scripted_model t(behaviour{.lang = lang, .n_branch = 4, .pass_us = 1000});
    scripted_model m(behaviour{.lang = lang, .n_branch = 16, .hang_at = 2});
    pipeline       line(&t, &m, {});
    int32_t        n_accepted = 0;
    // The draft hangs until the first text ends. Later ones have it again, as soon as its thread gets a core.
    for (int i = 0; i < 500 && n_accepted == 0; ++i) {
        const ask q{.n_predict = 20};
        auto      text = line.begin(q.make());
        answer    a;
        read_some(line, *text, a, size_t(-1));
        check_same(a, reference(lang, 512, q), std::to_string(i));
        n_accepted = i > 0 ? a.stats.n_accepted : 0;
    }
    CHECK(n_accepted > 0);
}
