// What a draft is told about one text.
#pragma once

#include <cstdint>

#include "stance_choice.h"
#include "text_share.h"

namespace duo {

struct draft_wishes {
    int32_t n_ahead      = 0; // useful levels below the root; 0: rest
    int32_t n_branch     = 1; // frontier nodes that it expands at once, at most
    int32_t n_want       = 0; // only so many of the best nodes are wanted; 0: no such bound
    int32_t least_path   = 0; // 1/1000: nodes with less chance are not worth a step; 0: no such bound
    int32_t branch_price = 1; // of one node more, 1/1000 of a step
    int32_t n_threads    = 0; // 0: all
};

// Decides that.
class wish_rule {
  public:
    // They must outlive it.
    wish_rule(const pair_profile & profile, const stance_rates & rates, const stance_choice & stances)
        : profile_(profile), rates_(rates), stances_(stances) {}

    // Only options and n_most of the text count.
    [[nodiscard]] draft_wishes of(const text_share & t) const;
    [[nodiscard]] int32_t      n_ahead(const text_share & t) const;
    // With turn-taking: n-grams of the text are as sure as the draft's guesses and promise more, because these cost
    // steps. So the draft makes none.
    [[nodiscard]] bool spares(const text_share & t) const;

  private:
    // The target waits for the draft.
    [[nodiscard]] bool turns(const plan_params & p) const {
        return stances_.now() == stance::by_turn || (p.mode == run_mode::sync && rates_.terms().n_texts == 1);
    }
    [[nodiscard]] int32_t n_by_turn(const text_share & t) const;
    [[nodiscard]] int32_t n_branch(const text_share & t) const;
    [[nodiscard]] int32_t least_path(const text_share & t) const;

    const pair_profile &  profile_;
    const stance_rates &  rates_;
    const stance_choice & stances_;
};

} // namespace duo
