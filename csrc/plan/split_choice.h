// How the cores are split while both models work: the split that is in use, and trials of its neighbours.
#pragma once

#include "core_split.h"
#include "pair_profile.h"
#include "stance_rates.h"

namespace duo {

// What was learned of the splits is the caller's (split_search): each way of generating has its own.
class split_choice {
  public:
    // Both must outlive it.
    split_choice(pair_profile & profile, const stance_rates & rates) : profile_(profile), rates_(rates) {}

    // What is to be known of the splits where nothing was learned yet.
    [[nodiscard]] static split_search begun(const pair_prior & prior);
    // The text is written with this one.
    void use(const split_search & s) const { profile_.choose_split(s.now()); }

    // Threads for each model's next work; 0: all its threads.
    [[nodiscard]] core_split threads(const split_search & s) const {
        const auto & splits = profile_.passes().prior().splits;
        return splits.empty() ? core_split{} : splits[s.now()];
    }

    // A pass with the best split is done: tries another one, if it is time. The model that the other one waits for gets
    // more cores first.
    void try_other(split_search & s) const;
    // A pass of a trial is done. own: what passes with the best split have brought; if the trial is won, what those of
    // the trial have.
    void judge(split_search & s, pace & own, int32_t n_tokens, double expected, double us) const;
    // Running ahead lost to turn-taking: the next time it uses another split. False: all were tried.
    [[nodiscard]] bool move_on(split_search & s) const;

  private:
    [[nodiscard]] bool draft_is_late() const;

    pair_profile &       profile_;
    const stance_rates & rates_;
};

} // namespace duo
