// The draft of a made-up world (planner_world.h): what draft_frontier and node_sender do, in simulated time.
#pragma once

#include <algorithm>
#include <cmath>
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
                        .away_us  = now.away_us};
        const int64_t wait_us = planner::next({&t, 1});
        return {.n_verify = int32_t(tree.rows().size()), .expected = t.expected, .wait_us = wait_us};
    }

    [[nodiscard]] draft_wishes orders() const {
        return planner::orders({.plan = &params_, .shape = &shape_, .n_most = n_most_});
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
inline double slower(double n_cores, double parallel, int32_t n_threads) {
    return n_threads > 0 ? 1.0 + parallel * (n_cores / n_threads - 1.0) : 1.0;
}

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

    void take_orders(const text_planner & pl) {
        const draft_wishes o = pl.orders();
        n_ahead_             = o.n_ahead;
        n_wide_              = o.n_branch;
        n_want_              = o.n_want;
        told_price_          = 1e-3 * o.branch_price;
        least_path_ =
            o.least_path > 0 ? std::log(1e-3f * float(o.least_path)) : -std::numeric_limits<float>::infinity();
        n_threads_ = o.n_threads;
        shape_     = pl.shape().empty() ? nullptr : &pl.shape();
    }

    [[nodiscard]] bool told_to_rest() const { return n_ahead_ <= 0; }

    // A new tree with a chain of n nodes.
    void reset(int32_t n = 0) {
        tree.reset(++n_ids_, 1);
        batch.clear();
        for (int32_t i = 0; i < n; ++i) {
            tree.insert(n_ids_ + 1, n_ids_, 1, float(best_logp));
            ++n_ids_;
        }
    }

    // A step that has begun runs to its end, whatever the verdict.
    void choose() {
        if (!batch.empty() || n_ahead_ <= 0) {
            return;
        }
        std::vector<int32_t> best{0};
        const bool           again = of_head && root_age_ != 0;
        if (tree.root().expanded() && n_levels > 1) {
            return;
        }
        if (tree.root().expanded() && !again) {
            const bool no_more = shape_ == nullptr && (tree.size() >= 512 || complete());
            best.resize(no_more ? 0 : shape_ != nullptr ? 16 : size_t(n_wide_));
            if (shape_ != nullptr) {
                shape_->match(tree, places_);
            }
            best.resize(tree.frontier(best, [this](int32_t i) {
                return shape_ != nullptr ? places_[size_t(i)] >= 0 && shape_->n_children(places_[size_t(i)]) > 0
                                         : tree.at(i).depth < n_ahead_ && tree.at(i).path >= least_path_ &&
                                               (n_wide_ == 1 || tree.at(i).path >= -5.5f);
            }));
        }
        double worth = 0.0;
        double cost  = 1.0;
        for (const int32_t i : best) {
            const double more = std::exp(double(tree.at(i).path));
            if (!batch.empty() && shape_ == nullptr) {
                if (more * cost < worth * told_price_) {
                    break;
                }
                cost += told_price_;
            }
            worth += more;
            batch.push_back(tree.at(i).id);
        }
        left = step_us * slower(n_cores, parallel, n_threads_) * (1.0 + price * (double(batch.size()) - 1.0));
        took = beside = 0.0;
    }

    void finish_step(pair_profile & profile) {
        for (const node_id id : batch) {
            const int32_t i = tree.find(id);
            if (id == late_id) {
                profile.guesses(guess_kind::noise).on_child(float(best_logp), late_token == 1);
                profile.guesses(guess_kind::noise).on_guess(0, late_token == 1, true);
            }
            if (i >= 0) {
                expand(i);
            }
        }
        std::vector<int32_t> next(1);
        for (int32_t n = 0; n_levels > 1 && n < 48; ++n) {
            const auto in_block = [this](int32_t i) { return tree.at(i).depth < std::min(n_levels, n_ahead_); };
            if (tree.frontier(next, in_block) == 0) {
                break;
            }
            expand(next.front());
        }
        profile.on_step(int32_t(batch.size()), float(took), n_threads_ > 0 ? 1.0 : beside / std::max(1.0, took));
        batch.clear();
    }

    // True: it had foreseen the token.
    bool commit(int32_t i_node, token_id token) {
        const int32_t i_next = tree.child(i_node, token);
        // A draft that is passes behind finishes the step for the oldest of them.
        if (std::find(batch.begin(), batch.end(), late_id) == batch.end()) {
            late_id    = tree.at(i_node).id;
            late_token = token;
        }
        if (i_next >= 0 && n_levels == 1) {
            root_age_ = tree.at(i_next).age + 1;
            tree.re_root(i_next);
        } else {
            root_age_ = 0;
            tree.reset(++n_ids_, token);
        }
        return i_next >= 0;
    }

  private:
    void expand(int32_t i) {
        const node_id id  = tree.at(i).id;
        const int16_t age = int16_t(!of_head ? no_age : i == 0 ? 0 : tree.at(i).age + 1);
        root_age_         = i == 0 ? 0 : root_age_;
        guess(i, id, 1, float(best_logp), age);
        if (has_other && (n_wide_ > 1 || shape_ != nullptr)) {
            guess(i, id, 2, float(other_logp), age);
        }
        if (of_head && i == 0 && is_stale()) {
            tree.forget_rows();
        }
        tree.mark_expanded(i, 0);
    }

    void guess(int32_t i, node_id id, token_id token, float logp, int16_t age) {
        if (const int32_t there = tree.child(i, token); there >= 0) {
            tree.revise(there, logp, age);
        } else {
            tree.insert(++n_ids_, id, token, logp, age);
        }
    }

    [[nodiscard]] bool is_stale() const {
        for (int32_t i = 1; i < tree.size(); ++i) {
            if (tree.at(i).expanded() && tree.at(i).age + 1 - tree.at(i).depth > 4) {
                return true;
            }
        }
        return false;
    }

    [[nodiscard]] bool complete() const {
        float   best = -5.5f;
        int32_t n    = 0;
        for (int32_t i = 1; i < tree.size(); ++i) {
            best = tree.at(i).expanded() ? best : std::max(best, tree.at(i).path);
        }
        for (int32_t i = 1; i < tree.size(); ++i) {
            n += tree.at(i).path >= best ? 1 : 0;
        }
        return n_want_ > 0 && n >= n_want_;
    }

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
