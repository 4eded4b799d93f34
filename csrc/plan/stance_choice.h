// Chooses how texts are written: the draft runs ahead, takes turns with the target, or rests. It goes by what passes
// have brought.
#pragma once

#include <cstdint>

#include "pair_profile.h"
#include "stance_history.h"
#include "text_share.h"

namespace duo {

// What the models, the cache and the place of the drafts allow.
struct text_limits {
    int32_t n_texts  = 1;           // that share a pass
    int32_t n_undo   = n_draft_cap; // guesses in a pass that the target can take back
    bool    copy     = false;       // of its ways to do that: undo_kind::copy
    bool    no_waits = false;       // no text may wait for another one's draft
    bool    goes_on  = false;       // no new text: the planner was told of it before

    [[nodiscard]] bool several() const { return n_texts > 1; }
};

// What a pass has brought.
struct pass_result {
    int32_t n_tokens = 0;
    double  expected = 0.0; // tokens, by the planner
    double  us       = 0.0; // with the wait for the draft
    bool    drafting = true;
    bool    usual    = true; // false: prompts or drafts that begin were read too, so it says nothing of later passes
};

class stance_choice {
  public:
    static constexpr int32_t n_alone     = 2;    // passes over one row that have to be known
    static constexpr double  trial_share = 0.02; // share of the time that trials may cost

    // Both must outlive it.
    stance_choice(const pair_profile & profile, const stance_rates & rates) : profile_(profile), rates_(rates) {}

    // Texts are written with these options from now on. The rates must have begun, too.
    void begin(const plan_params & params, const text_limits & limits);
    void on_pass(const pass_result & pass);

    [[nodiscard]] stance now() const { return memory_.now().stance_now; }
    // The next pass is the yardstick: it starts when the draft stands still, to measure a pass without it.
    [[nodiscard]] bool   measuring() const { return measuring_; }
    [[nodiscard]] double rate() const; // tokens per microsecond of all texts; 0: nothing measured yet
    // The draft works while the target does.
    [[nodiscard]] bool draft_works() const { return now() == stance::ahead && !measuring_; }
    // Threads for each model's next work; 0: all its threads.
    [[nodiscard]] core_split threads() const {
        return draft_works() && !limits_.several() ? profile_.passes().prior().split : core_split{};
    }
    // Both models are on the same cores.
    [[nodiscard]] bool shared() const { return profile_.passes().prior().shared; }
    // The target waits for the draft's guesses.
    [[nodiscard]] bool may_wait() const { return !limits_.no_waits; }

    // What was learned. After a change of the way in use, begin() must follow.
    [[nodiscard]] stance_memory &       memory() { return memory_; }
    [[nodiscard]] const stance_memory & memory() const { return memory_; }

  private:
    [[nodiscard]] bool    takes_turns_first() const;
    [[nodiscard]] stance  first() const;
    [[nodiscard]] int32_t turns_before_ahead() const;
    [[nodiscard]] int32_t rest_before_trial() const;
    [[nodiscard]] bool    yardstick_due() const;
    [[nodiscard]] bool    loses_clearly() const;
    [[nodiscard]] bool    speculation_is_poor(double own) const;
    [[nodiscard]] bool    turns_are_faster(double own);
    void                  reconsider();

    // One function for each change of stance. False: the stance stays.
    bool end_rest();            // rest -> by_turn or ahead
    bool begin_ahead_trial();   // by_turn -> ahead
    bool fall_back(double own); // ahead -> by_turn
    bool begin_rest();          // ahead or by_turn -> rest

    const pair_profile & profile_;
    const stance_rates & rates_;
    plan_params          params_;
    text_limits          limits_;
    bool                 measuring_ = false;
    stance_memory        memory_;
};

} // namespace duo
