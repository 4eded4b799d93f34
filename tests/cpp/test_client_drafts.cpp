// On a host, what one client's draft claims must not decide for the texts of others.
#include "check.h"
#include "scripted_model.h"
#include "verify/client_drafts.h"

using namespace duo;
using namespace duo_test;

namespace {

struct clients {
    scripted_model           model{behaviour{}};
    planner                  plans;
    client_drafts            drafts{plans};
    request                  requests[3];
    std::vector<verify_slot> slots;

    clients() {
        slots.reserve(3);
        for (int32_t i = 0; i < 3; ++i) {
            requests[i].prompt = {3, 1, 2};
            requests[i].id     = request_node(uint64_t(i) + 1);
            requests[i].client = uint64_t(i) + 1;
            slots.emplace_back(model, i, 1);
            slots.back().text.begin(requests[i]);
            slots.back().for_draft = true;
        }
    }

    // So many steps of one client's draft, and guesses that were right or wrong.
    void learn(size_t i, float step_us, bool right) {
        for (int k = 0; k < 200; ++k) {
            drafts.on_step(slots[i], 1, step_us, 1.0);
            drafts.guesses_of(slots[i]).on_guess(0, right, false);
        }
    }
};

} // namespace

TEST(a_client_that_claims_slow_steps_and_wrong_guesses_is_alone_with_them) {
    clients c;
    c.drafts.use(1);
    c.learn(0, 2000.0f, true);
    const double step = c.plans.profile().step_us(1, true);
    const double a    = c.plans.profile().guesses(guess_kind::noise).acceptance(0);
    c.learn(1, 1e9f, false); // while the first one's text is planned
    CHECK_EQ(c.plans.profile().step_us(1, true), step);
    CHECK_EQ(c.plans.profile().guesses(guess_kind::noise).acceptance(0), a);
    c.drafts.use(2);
    CHECK(c.plans.profile().step_us(1, true) > 1e7 && c.plans.profile().step_us(1, true) <= 6e7,
          "a minute is believed");
    CHECK(c.plans.profile().guesses(guess_kind::noise).acceptance(0) < 0.2);
    c.drafts.use(1);
    CHECK_EQ(c.plans.profile().step_us(1, true), step);
}

TEST(a_client_that_rests_does_not_make_others_rest) {
    clients           c;
    const plan_params params{.kind = guess_kind::noise};
    c.drafts.use(1);
    c.plans.begin(params);
    for (int i = 0; i < 400 && c.plans.stance_now() != stance::rest; ++i) { // it brings nothing
        c.plans.profile().on_pass(1, 1000, 1.0);
        c.plans.profile().on_pass(2, 2000, 1.0);
        c.learn(0, 50000.0f, false);
        c.plans.on_pass({.n_tokens = 1, .us = 50000});
    }
    CHECK(c.plans.stance_now() == stance::rest);
    c.drafts.use(2);
    c.plans.begin(params);
    CHECK(c.plans.stance_now() != stance::rest);
    c.drafts.use(1);
    c.plans.begin(params);
    CHECK(c.plans.stance_now() == stance::rest, "what was learned of it is still known");
}

TEST(texts_of_several_clients_go_by_the_median_draft) {
    clients c;
    c.learn(0, 2000.0f, true);
    c.learn(1, 1e9f, false);
    c.learn(2, 3000.0f, true);
    c.drafts.use_median({&c.slots[0], &c.slots[1], &c.slots[2]});
    CHECK(std::abs(c.plans.profile().step_us(1, true) - 3000.0) < 100.0,
          std::to_string(c.plans.profile().step_us(1, true)));
}

TEST(only_so_many_clients_are_remembered) {
    clients c;
    for (uint64_t client = 1; client < 1000; ++client) {
        c.requests[0].client = client;
        c.learn(0, 2000.0f, true);
        c.drafts.use(client);
    }
    CHECK(c.drafts.size() <= client_drafts::n_most + 1, std::to_string(c.drafts.size()));
    // Those that write now are not the ones that are forgotten, whatever their number is.
    for (uint64_t i = 0; i < 3; ++i) {
        c.requests[i].client = i + 1;
    }
    for (int k = 0; k < 200; ++k) {
        for (size_t i = 0; i < 3; ++i) {
            c.drafts.on_step(c.slots[i], 1, 2000.0f, 1.0);
        }
    }
    for (uint64_t client = 1; client <= 3; ++client) {
        c.drafts.use(client);
        CHECK(std::abs(c.plans.profile().step_us(1, true) - 2000.0) < 1.0, std::to_string(client));
    }
}

TEST(a_client_of_which_nothing_is_known_does_not_decide) {
    clients c;
    c.learn(0, 3000.0f, true);
    c.drafts.use_median({&c.slots[0], &c.slots[1]}); // the second one is new
    CHECK(std::abs(c.plans.profile().step_us(1, true) - 3000.0) < 1.0);
}
