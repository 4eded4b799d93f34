// The draft of a made-up world (planner_world.h): what draft_frontier and node_sender do, in simulated time.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "plan/planner.h"

namespace duo_test {

using namespace duo;

// Than with all n_cores. parallel: share of the work that threads divide among them; n_threads 0: it has all cores.
double slower(double n_cores, double parallel, int32_t n_threads);

// A node's best guess is token 1, the runner-up token 2.
struct made_up_draft {
    token_tree           tree;
    std::vector<node_id> batch;        // nodes of the step that runs; empty: it stands still
    double               left   = 0.0; // of that step, microseconds if undisturbed
    double               took   = 0.0; // so far
    double               beside = 0.0; // of that, while the target worked too

    double best_logp  = 0.0; // what it says of its guesses
    double other_logp = -99.0;
    bool   has_other  = false;
    double step_us    = 0.0;
    double price      = 0.0; // of one node more in a step, as a share of it
    double n_cores    = 0.0;
    double parallel   = 0.0;

    int32_t n_levels = 1;     // above 1: a step over the root gives so many levels, and nothing is kept after a verdict
    bool    of_head  = false; // nodes have ages, and a root is evaluated again after a verdict

    // The last accepted node, if it was not expanded: a guess below it comes too late, but was right or wrong too.
    node_id  late_id    = no_node;
    token_id late_token = no_token;

    void take_orders(const planner & pl);

    [[nodiscard]] bool told_to_rest() const { return n_ahead_ <= 0; }

    // A new tree with a chain of n nodes.
    void reset(int32_t n = 0);

    // A step that has begun runs to its end, whatever the verdict.
    void choose();

    void finish_step(pair_profile & profile);

    // True: it had foreseen the token.
    bool commit(int32_t i_node, token_id token);

  private:
    void expand(int32_t i);

    void guess(int32_t i, node_id id, token_id token, float logp, int16_t age);

    [[nodiscard]] bool is_stale() const;

    [[nodiscard]] bool complete() const;

    node_id              n_ids_      = 0;
    int32_t              root_age_   = 0; // of the row that the root's children come from
    int32_t              n_ahead_    = 0;
    int32_t              n_wide_     = 1;
    int32_t              n_want_     = 0;
    double               told_price_ = 0.05;
    float                least_path_ = -std::numeric_limits<float>::infinity();
    int32_t              n_threads_  = 0;
    const tree_shape *   shape_      = nullptr;
    std::vector<int32_t> places_;
};

} // namespace duo_test
