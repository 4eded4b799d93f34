// Decides whether a pass waits for the drafts of its texts, and how long at most.
#pragma once

#include <cstdint>

#include "draft_wishes.h"
#include "row_values.h"

namespace duo {

class wait_rule {
  public:
    // They must outlive it.
    wait_rule(const stance_rates & rates, const stance_choice & stances, const wish_rule & wishes)
        : rates_(rates), stances_(stances), wishes_(wishes) {}

    // Levels of the text's tree that the pass waits for, because the draft takes turns with the target or the user has
    // fixed what is verified.
    [[nodiscard]] int32_t n_awaited(const text_share & t) const;
    // True if it pays to wait until a draft that runs ahead has made the best path some levels longer. value: of the
    // rows that are known now. rows: what rows cost.
    [[nodiscard]] bool pays(double value, const text_share & t, int32_t n_most, const row_values & rows) const;
    // Microseconds for so many levels.
    [[nodiscard]] int64_t us(int32_t n_levels, const text_share & t) const;

  private:
    [[nodiscard]] int32_t n_of_fixed(const text_share & t) const;
    [[nodiscard]] bool    beside() const { return stances_.now() == stance::ahead; }

    const stance_rates &  rates_;
    const stance_choice & stances_;
    const wish_rule &     wishes_;
};

} // namespace duo
