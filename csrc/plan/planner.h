// Decides what to verify, whether to wait for the draft, and what the draft should do meanwhile. It goes by
// measurements, not by configured numbers.
//
// A pass over a set of drafted nodes brings E = 1 + (sum of the nodes' chances) tokens (Leviathan et al., arXiv
// 2211.17192, for a chain). It costs the time of the wait and of the pass. The best long-run rate R is reached by
// maximising E - R * cost in each pass (Dinkelbach 1967). R is taken as the running rate of this text. So one more node
// is verified if its chance is above R times the cost of one more row. One more draft step is waited for if the chance
// of its node is above R times the step's duration.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "pair_profile.h"
#include "pass_tree.h"
#include "stance_history.h"
#include "text/request.h"
#include "tree/tree_shape.h"

namespace duo {

struct plan {
    int32_t n_verify = 0;   // nodes chosen (pass_tree::rows)
    double  expected = 1.0; // tokens of the pass
    int64_t wait_us  = 0;   // > 0: do not start yet, but wait so long for the next node at most
};

// What the verify worker knows when it asks for a plan.
struct situation {
    int32_t n_room  = 0;     // rows that context and batch have left for drafted tokens
    bool    growing = false; // the draft may still add nodes
    bool    fresh   = false; // the draft had not foreseen the root
    int32_t n_base  = 1;     // rows of the pass besides drafted ones
    int64_t away_us = 0;     // a verdict and the first node after it take this much longer: the draft is elsewhere
};

// Drafted tokens in a pass that a text's options allow. n_auto: if the number is the planner's choice.
[[nodiscard]] int32_t n_drafted_most(const plan_params & params, const tree_shape & shape, int32_t n_auto);

// What was learned of one draft: its measurements, and the ways of generating with it.
struct draft_memory {
    draft_profile                        profile{};
    std::map<stance_key, stance_history> ways{};
};

// Owned by the verify worker.
class planner {
  public:
    // What is known about the pair before it has computed anything.
    void expect(const pair_prior & prior);

    // Between texts: another draft is at work from now on. other: what is known of it; it takes what was known of the
    // one before.
    void exchange_draft(draft_memory & other);

    // n_branch: branches of the target's cache.
    // n_most: guesses in a pass that the target can take back. copy: of its ways to do that (undo_kind).
    void begin(const plan_params & params, int32_t n_branch, int32_t n_most = n_draft_cap, bool copy = false);

    // Plans the next pass, and chooses its rows in `tree`.
    [[nodiscard]] plan next(pass_tree & tree, const situation & now);

    // The pass that was planned last is done. us: its duration, including the wait. drafting: the text has a draft that
    // has begun.
    void on_verdict(int32_t n_tokens, double expected, int64_t us, bool drafting = true);

    // Orders for the draft: useful levels below the root (0: rest), and most nodes in a step.
    [[nodiscard]] int16_t n_ahead() const;
    [[nodiscard]] int16_t n_branch() const;
    [[nodiscard]] int16_t branch_price() const; // 1/1000 of a step
    [[nodiscard]] int16_t n_want() const;       // only so many of the best nodes are wanted; 0: no such bound
    [[nodiscard]] int16_t least_path() const;   // 1/1000: nodes with less chance are not worth a step; 0: no such bound

    [[nodiscard]] stance stance_now() const { return history_->stance_now; }
    // The next pass is the yardstick: it starts when the draft stands still, to measure a pass without it.
    [[nodiscard]] bool measuring() const { return measuring_; }
    // The draft works while the target does.
    [[nodiscard]] bool   draft_works() const { return history_->stance_now == stance::ahead && !measuring_; }
    [[nodiscard]] double rate() const; // tokens per microsecond; 0: nothing measured yet

    // Threads for each model's next work; 0: all its threads.
    [[nodiscard]] core_split threads() const;

    // The draft begins only when that pays (draft_pays()), because its reading of the text slows the target down.
    [[nodiscard]] bool draft_begins_late() const { return shared_; }
    // True if the draft saves more time over the next n_tokens than its reading of the text takes, or if that reading
    // is short compared with the time of the text so far, so that a trial costs little.
    [[nodiscard]] bool draft_pays(int64_t reading_us, int32_t n_tokens, int64_t elapsed_us) const;
    // Microseconds that a draft saves over the next n_tokens, by what is known.
    [[nodiscard]] double draft_saves(int32_t n_tokens) const;
    [[nodiscard]] bool   draft_may_skip() const { return shared_ && windows_; } // see pair_prior::windows

    // Nodes with less chance than this can be ignored.
    [[nodiscard]] double             least_chance() const { return adaptive() ? 0.01 : 0.0; }
    [[nodiscard]] const tree_shape & shape() const { return shape_; }

    [[nodiscard]] pair_profile &       profile() { return profile_; }
    [[nodiscard]] const pair_profile & profile() const { return profile_; }

    // All that was learned, as numbers for a file. restore() takes what saved() gave, and ignores any other list. Call
    // them while no text is being generated.
    [[nodiscard]] std::vector<double> saved() const;
    void                              restore(std::span<const double> numbers);
    void                              forget();

  private:
    static constexpr double  least_gain  = 0.04; // tokens a pass: less is within the noise of measurement
    static constexpr double  least_share = 0.02; // the same as a share of the rate
    static constexpr double  trial_share = 0.02; // share of a text's time that trials of other stances may cost
    static constexpr int32_t n_alone     = 2;    // passes over one row before auto tries more

    struct choice {
        double  value = 0.0; // E - R * cost, tokens
        double  sum   = 1.0; // E
        int32_t n     = 0;
    };

    struct way {
        int32_t k    = 0;   // guesses a pass
        double  rate = 0.0; // tokens per microsecond
    };
    // What each stance would bring, by what is known now.
    struct outlook {
        way hopeful; // turn-taking with the best k, if unmeasured widths are cheap; k 0: none pays
        way turns;   // the same without that assumption
        way ahead;   // upper bound of running ahead: every pass finds its guesses ready
    };

    // A pass (planner.cpp).
    [[nodiscard]] const guess_record & guesses() const { return profile_.guesses(params_.kind); }

    [[nodiscard]] bool    adaptive() const;
    [[nodiscard]] int32_t widest_try() const;
    [[nodiscard]] bool    turns() const {
        return params_.mode == run_mode::sync || history_->stance_now == stance::by_turn;
    }
    [[nodiscard]] bool   beside() const { return history_->stance_now == stance::ahead; }
    void                 price(const situation & now, int32_t n_most, double r);
    [[nodiscard]] double best_ratio(const pass_tree & tree, const situation & now, const std::vector<int32_t> & path,
                                    int32_t n_most) const;
    [[nodiscard]] choice best_of(const pass_tree & tree, const std::vector<int32_t> & order, int32_t n_base,
                                 int32_t n_most) const;
    [[nodiscard]] bool   wait_pays(double value, const pass_tree & tree, const situation & now,
                                   const std::vector<int32_t> & path, int32_t n_most) const;
    [[nodiscard]] plan   wait_for(int32_t n_steps, const situation & now) const;
    plan                 fixed(pass_tree & tree, const situation & now, int32_t n_most);
    plan                 by_turn(pass_tree & tree, const situation & now, int32_t n_most);
    plan                 by_worth(pass_tree & tree, const situation & now, int32_t n_most);
    [[nodiscard]] bool   prefers_tree(pass_tree & tree, const situation & now, int32_t n_most, choice & best) const;
    plan                 take(pass_tree & tree, const std::vector<int32_t> & order, int32_t n);
    // Of the draft, for so many levels.
    [[nodiscard]] int32_t n_steps(int32_t n_levels) const { return steps_for(n_levels, n_levels_); }

    // What the stances would bring (planner_rates.cpp).
    [[nodiscard]] const outlook & ways() const;
    [[nodiscard]] outlook         find_outlook() const;
    [[nodiscard]] bool            turns_could_pay() const;
    [[nodiscard]] double          gain() const;
    [[nodiscard]] double          acceptance(int32_t level, int32_t age) const;
    [[nodiscard]] double          price_of_guess() const;
    [[nodiscard]] double          tokens_ahead(int32_t k, double tokens) const;

    // Between passes (planner_stance.cpp).
    [[nodiscard]] stance  first_stance() const;
    [[nodiscard]] int32_t turns_before_ahead() const;
    [[nodiscard]] int32_t rest_before_trial() const;
    [[nodiscard]] bool    yardstick_due() const;
    [[nodiscard]] bool    speculation_is_poor(double own) const;
    [[nodiscard]] bool    turns_are_faster(double own);
    void                  reconsider();
    void                  choose_yardstick();
    [[nodiscard]] bool    async() const { return params_.mode == run_mode::async; }

    // One function for each change of stance. False: the stance stays.
    bool end_rest();            // rest -> by_turn or ahead
    bool begin_ahead_trial();   // by_turn -> ahead
    bool fall_back(double own); // ahead -> by_turn
    bool begin_rest();          // ahead or by_turn -> rest

    [[nodiscard]] bool draft_is_late() const;
    void               try_split();
    void               judge_split(int32_t n_tokens, double expected, double us);

    plan_params             params_;
    pair_profile            profile_;
    tree_shape              shape_;
    int32_t                 n_max_      = 0;
    int32_t                 n_branches_ = 1;
    bool                    copy_       = false;
    int32_t                 n_levels_   = 1;     // see pair_prior
    bool                    shared_     = false; // both models are on the same cores
    bool                    windows_    = false; // see pair_prior
    std::vector<core_split> splits_;             // of these
    size_t                  split_ = 0;          // the likely one

    std::array<double, n_draft_cap + 2> cost_{};  // scratch: see price()
    mutable outlook                     outlook_; // as of the profile's change number outlook_at_
    mutable int64_t                     outlook_at_ = -1;
    bool measuring_ = false; // the next pass is made without the draft beside it: the yardstick

    std::map<stance_key, stance_history> histories_; // one for each way of generating with this pair
    stance_history *                     history_ = &histories_[{}];
};

} // namespace duo
