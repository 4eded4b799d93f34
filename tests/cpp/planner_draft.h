// The draft of a made-up world (planner_world.h): what draft_frontier and node_sender do, in simulated time.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "plan/planner.h"

namespace duo_test {

using namespace duo;

// The planner of one text.
class text_planner : public planner {
  public:
    text_planner() = default;
    text_planner(const pair_prior & prior, const plan_params & params, int32_t n_branch) {
        expect(prior);
        begin(params, n_branch);
    }

    struct plan {
        int32_t n_verify = 0;   // nodes chosen (pass_tree::rows)
        double  expected = 1.0; // tokens of the pass
        int64_t wait_us  = 0;   // > 0: do not start yet
    };
    struct situation {
        int32_t n_room  = 0;
        bool    growing = false;
        bool    fresh   = false;
        int32_t n_base  = 1;
        int64_t away_us = 0;
    };

    void begin(const plan_params & params, int32_t n_branch, int32_t n_undo = n_draft_cap, bool copy = false) {
        params_   = params;
        shape_    = tree_shape(params.tree);
        n_branch_ = n_branch;
        n_most_   = std::min(n_drafted_most(params_, shape_), n_undo);
        planner::begin(params, {.n_undo = n_undo, .copy = copy});
    }

    plan next(pass_tree & tree, const situation & now) {
        text_share    t{.tree     = &tree,
                        .plan     = &params_,
                        .shape    = &shape_,
                        .n_most   = std::min(n_most_, now.n_room),
                        .n_base   = now.n_base,
                        .n_branch = n_branch_,
                        .growing  = now.growing,
                        .fresh    = now.fresh,
                        .fixed    = is_fixed(params_),
                        .away_us  = now.away_us};
        const int64_t wait_us = planner::next({&t, 1});
        return {.n_verify = int32_t(tree.rows().size()), .expected = t.expected, .wait_us = wait_us};
    }

    [[nodiscard]] draft_wishes orders() const {
        return planner::orders({.plan = &params_, .shape = &shape_, .n_most = n_most_, .fixed = is_fixed(params_)});
    }
    [[nodiscard]] int32_t            n_ahead() const { return orders().n_ahead; }
    [[nodiscard]] double             least_chance() const { return is_fixed(params_) ? 0.0 : 0.01; }
    [[nodiscard]] const tree_shape & shape() const { return shape_; }

  private:
    plan_params params_;
    tree_shape  shape_;
    int32_t     n_branch_ = 1;
    int32_t     n_most_   = 0;
};

// Than with all n_cores. parallel: share of the work that threads divide among them; n_threads 0: it has all cores.
double slower(double n_cores, double parallel, int32_t n_threads);

// What a draft says of its two best guesses for a token of a text, and which of them is right.
struct traced_guess {
    float   logp[2] = {0.0f, 0.0f};
    int32_t right   = 0; // 1 or 2; 0: neither
};

// A node's best guess is token 1, the runner-up token 2.
struct made_up_draft {
    token_tree           tree;
    std::vector<node_id> batch;        // nodes of the step that runs; empty: it stands still
    double               left   = 0.0; // of that step, microseconds if undisturbed
    double               took   = 0.0; // so far
    double               beside = 0.0; // of that, while the target worked too

    std::span<const traced_guess> trace;           // of a real text, which begins again at its end; empty: made up
    size_t                        n_committed = 0; // tokens of the text so far

    double best_logp  = 0.0; // what it says of its guesses, if made up
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
    float    late_logp  = 0.0f; // what it would say

    void take_orders(const text_planner & pl);

    [[nodiscard]] bool told_to_rest() const { return n_ahead_ <= 0; }

    // A new tree with a chain of n nodes.
    void reset(int32_t n = 0);

    // A step that has begun runs to its end, whatever the verdict.
    void choose();

    void finish_step(pair_profile & profile);

    // Of the token that follows a node; what is right is only known of a trace.
    [[nodiscard]] traced_guess guess_after(int32_t i) const {
        return trace.empty() ? traced_guess{.logp = {float(best_logp), float(other_logp)}}
                             : trace[(n_committed + size_t(tree.at(i).depth)) % trace.size()];
    }

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
