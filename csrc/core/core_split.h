// How many threads each model has while both work on the same cores: of some splits the one that is measured to bring
// most. Neighbours of the best one so far are tried in turn (hill climbing), at growing intervals.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pace.h"

namespace duo {

struct core_split {
    int32_t target = 0; // threads; 0: as many as the model was given
    int32_t draft  = 0;
};

// A trial of another split has a pace of its own, and nothing else is judged meanwhile.
class split_search {
  public:
    // n splits, the draft's share ascending; the first one is a guess.
    void begin(size_t n, size_t first);

    [[nodiscard]] size_t now() const { return now_; }
    [[nodiscard]] size_t best() const { return best_; }
    [[nodiscard]] bool   on_trial() const { return now_ != best_; }

    // A pass with the best split is done. more_draft: the draft held it up, so it is the one to get another core first.
    // True: a trial begins.
    bool on_pass(bool more_draft);

    // A pass of the trial is done. `bound`, `best_bound`: tokens per microsecond that this split and the best one can
    // reach by the times measured; 0: unknown. False: the trial is over, and now() may be the new best().
    bool on_trial_pass(int32_t n_tokens, double expected, double us, double best_rate, double bound, double best_bound);

    // The text went on in another way.
    void stop_trial() { now_ = best_; }

    // With this split running ahead is slower than turn-taking: the next time a neighbour is used. False: all were.
    bool move_on(bool more_draft);

    // Of the last trial.
    [[nodiscard]] const pace & tried() const { return trial_; }

    // Passes before the next trial: what saved profiles keep beside best().
    [[nodiscard]] int32_t n_wait() const { return n_wait_; }
    // Ignores what cannot be.
    void restore(size_t best, int32_t n_wait);

  private:
    size_t   n_      = 1;
    size_t   best_   = 0;
    size_t   now_    = 0;
    bool     turned_ = false; // the last trial, in one direction, was lost: the next one goes in the other
    bool     up_     = false; // direction of the last trial
    int32_t  n_wait_ = 0;     // passes between two trials
    uint64_t slow_   = 0;     // bits of the splits that move_on() left
    int32_t  n_in_   = 0;     // passes since the last one
    pace     trial_;
};

} // namespace duo
