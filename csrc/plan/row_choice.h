// Chooses the rows of the next pass: which drafted nodes of its texts are verified.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pair_profile.h"
#include "row_values.h"
#include "stance_choice.h"
#include "stance_rates.h"
#include "text_share.h"
#include "wait_rule.h"

namespace duo {

class row_choice {
  public:
    // They must outlive it.
    row_choice(const pair_profile & profile, const stance_rates & rates, const stance_choice & stances,
               const wait_rule & waits)
        : profile_(profile), rates_(rates), stances_(stances), waits_(waits) {}

    // Chooses rows in the trees of the texts, n_rows at most. > 0: it pays to wait so many microseconds for more nodes.
    int64_t choose(std::span<text_share> texts, int32_t n_rows);
    // Chooses the first n nodes of the best path or of the whole tree.
    static void take(text_share & t, bool wide, int32_t n);

  private:
    void               take_fixed(std::span<text_share> texts, int32_t & n_base, int32_t & n_rows);
    [[nodiscard]] bool prefers_tree(const text_share & t, int32_t n_base, int32_t n_most, row_values::gain & best);

    const pair_profile &  profile_;
    const stance_rates &  rates_;
    const stance_choice & stances_;
    const wait_rule &     waits_;
    row_values            values_;
    std::vector<int32_t>  n_of_; // scratch: rows of each text
};

} // namespace duo
