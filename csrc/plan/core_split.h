// Chooses how many threads each model has while both work on the same cores. Of the possible splits it looks for the
// fastest one by hill climbing: neighbours of the best split so far are tried in turn, at growing intervals.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pace.h"

namespace duo {

struct core_split {
    int32_t target = 0; // threads; 0: as many as the model was given
    int32_t draft  = 0;
};

// A trial of another split has its own pace. Nothing else is judged during a trial.
class split_search {
  public:
    // n splits, ordered by the draft's share, smallest first. `first`: the split to begin with.
    void begin(size_t n, size_t first);

    [[nodiscard]] size_t now() const { return now_; }
    [[nodiscard]] size_t best() const { return best_; }
    [[nodiscard]] bool   on_trial() const { return now_ != best_; }

    // A pass with the best split is done. more_draft: the target waited for the draft, so the draft should get another
    // core first. True: a trial begins.
    bool on_pass(bool more_draft);

    // A pass of the trial is done. `promise`, `best_promise`: tokens per microsecond that the times measured promise of
    // this split and of the best one; 0: unknown. False: the trial is over, and now() may be the new best().
    bool on_trial_pass(int32_t n_tokens, double expected, double us, double best_rate, double promise,
                       double best_promise);

    // The text goes on in another stance.
    void stop_trial() { now_ = best_; }

    // With this split, running ahead is slower than turn-taking. A neighbour is used the next time. False: all splits
    // were tried.
    bool move_on(bool more_draft);

    // How fast the last trial was.
    [[nodiscard]] const pace & tried() const { return trial_; }

    // Passes before the next trial. Saved profiles keep it together with best().
    [[nodiscard]] int32_t n_wait() const { return n_wait_; }
    // Ignores impossible values.
    void restore(size_t best, int32_t n_wait);

  private:
    size_t   n_          = 1;
    size_t   best_       = 0;
    size_t   now_        = 0;
    bool     turn_next_  = false; // the last trial failed: the next one goes in the other direction
    bool     more_draft_ = false; // direction of the last trial
    int32_t  n_wait_     = 0;     // passes between two trials
    uint64_t left_       = 0;     // a bit for each split that move_on() has left
    int32_t  n_in_       = 0;     // passes since the last one
    pace     trial_;
};

} // namespace duo
