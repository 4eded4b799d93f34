// What to verify, whether to wait for the draft, and what the draft should do meanwhile. Measured, not configured.
//
// A pass over a set of drafted nodes brings E = 1 + (sum of the nodes' chances) tokens (Leviathan et al., arXiv
// 2211.17192, for a chain) and costs the wait and the pass. The best long-run rate R is that of the choices that
// maximise E - R * cost in each pass (Dinkelbach 1967); R is the running rate of this text. So one more node is
// verified if its chance is above R times what a row more costs, and one more draft step is waited for if the chance
// that its node is right is above R times its duration.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "pair_profile.h"
#include "pass_tree.h"
#include "request.h"
#include "tree_shape.h"

namespace duo {

struct plan {
    int32_t n_verify = 0;   // nodes chosen (pass_tree::rows)
    double  expected = 1.0; // tokens of the pass
    int64_t wait_us  = 0;   // > 0: do not start yet; longest wait for the next node
};

// Owned by the verify worker.
class planner {
  public:
    // n_branch: branches of the target's cache.
    void begin(const plan_params & params, int32_t n_branch);

    // Chooses in `tree`. n_room: rows that context and batch have left for drafted tokens. growing: the draft may still
    // add nodes. fresh: the draft had not foreseen the root. n_base: rows of the pass besides drafted ones. n_base:
    // rows of the pass besides drafted ones.
    [[nodiscard]] plan next(pass_tree & tree, int32_t n_room, bool growing, bool fresh = false, int32_t n_base = 1);

    // The draft is so far away: a verdict and the first node that it brings forth take so much longer. 0: here.
    void set_away_us(int64_t us) { away_us_ = double(us); }

    // The pass that was planned last is done: what came of it, and how long it took with its wait.
    void on_verdict(int32_t n_tokens, double expected, int64_t us);

    // Orders for the draft: levels below the root that are of use (0: rest), nodes in a step at most.
    [[nodiscard]] int16_t n_ahead() const;
    [[nodiscard]] int16_t n_branch() const;
    [[nodiscard]] int16_t branch_price() const; // 1/1000 of a step
    [[nodiscard]] int16_t n_want() const;       // the best so many nodes are wanted, and no more; 0: no such bound

    [[nodiscard]] stance how() const { return my_->how; }
    // The next pass is the yardstick: it waits until the draft stands still.
    [[nodiscard]] bool measuring() const { return measuring_; }
    // The draft works while the target does.
    [[nodiscard]] bool   draft_works() const { return my_->how == stance::ahead && !measuring_; }
    [[nodiscard]] double rate() const; // tokens per microsecond; 0: nothing measured yet

    // Nodes with less chance than this need not be looked at.
    [[nodiscard]] double             least_chance() const;
    [[nodiscard]] const tree_shape & shape() const { return shape_; }

    [[nodiscard]] pair_profile &       profile() { return profile_; }
    [[nodiscard]] const pair_profile & profile() const { return profile_; }

  private:
    static constexpr double  least_gain   = 0.04; // tokens a pass: less is within the noise of measurement
    static constexpr int32_t n_rest_first = 64;   // passes of rest; doubles
    static constexpr int32_t n_alone      = 2;    // passes over one row before auto tries more

    struct choice {
        double  value = 0.0; // E - R * cost, tokens
        double  sum   = 1.0; // E
        int32_t n     = 0;
    };

    [[nodiscard]] bool    adaptive() const;
    [[nodiscard]] bool    beside() const { return my_->how == stance::ahead; }
    void                  price(int32_t n_most);
    [[nodiscard]] choice  best_of(const pass_tree & tree, const std::vector<int32_t> & order, int32_t n_most) const;
    [[nodiscard]] bool    wait_pays(double value, const pass_tree & tree, const std::vector<int32_t> & path,
                                    int32_t n_most) const;
    [[nodiscard]] double  turns_rate(int32_t k, double step_us, bool hopeful = true) const;
    [[nodiscard]] double  best_turns_rate() const;
    [[nodiscard]] int32_t turns_width(int32_t n_most, double step_us, bool hopeful = true) const;
    [[nodiscard]] double  gain() const;
    [[nodiscard]] plan    with_wait(plan p, int32_t n_steps) const;
    plan                  fixed(pass_tree & tree, int32_t n_most, bool growing);
    plan                  by_turn(pass_tree & tree, int32_t n_most, bool growing);
    plan                  by_worth(pass_tree & tree, int32_t n_most, bool growing);
    plan                  take(pass_tree & tree, const std::vector<int32_t> & order, int32_t n);
    void                  reconsider();

    plan_params  params_;
    pair_profile profile_;
    tree_shape   shape_;
    int32_t      n_max_      = 0;
    int32_t      n_branches_ = 1;

    bool                                fresh_   = false; // of the root
    double                              away_us_ = 0.0;
    int32_t                             n_base_  = 1;
    std::array<double, n_draft_cap + 2> cost_{};
    bool measuring_ = false; // the next pass is made without the draft beside it: the yardstick

    // What was learned with some options survives its texts; several may share a pair (duo bench).
    struct experience {
        stance  how      = stance::ahead;
        int32_t n_in     = 0; // passes in this stance
        int32_t n_beside = 0; // of these, since one was made without the draft
        int32_t n_poor   = 0; // of these the last ones in which speculation did not pay
        int32_t n_slow   = 0; // or in which turn-taking would have been faster
        int32_t n_stay   = 0; // rest, by_turn: passes until another stance is tried
        int32_t n_rest   = 0; // length of the last rest
        int32_t n_turns  = 0; // length of the last spell of turn-taking

        double tokens   = 0.0; // fading sums over the passes of this stance
        double expected = 0.0;
        double time_us  = 0.0;

        void change(stance to);
    };
    std::map<std::array<int32_t, 5>, experience> all_; // by mode, n_max, n_min, n_branch, use
    experience *                                 my_ = &all_[{}];
};

} // namespace duo
