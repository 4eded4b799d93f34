// What drafted nodes are worth in a pass, and what their rows cost.
//
// A pass over a set of drafted nodes brings E = 1 + (sum of the nodes' chances) tokens for each text (Leviathan et al.,
// arXiv 2211.17192, for a chain). It costs the time of the wait and of the pass. The best long-run rate R is reached by
// maximising E - R * cost in each pass (Dinkelbach 1967). R is taken as the running rate of the texts. So one more node
// is verified if its chance is above R times the cost of one more row. The nodes of several texts compete for the rows.
// Rows become more expensive with their number, so with many texts speculation fades by itself.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "pair_profile.h"
#include "pass_tree.h"

namespace duo {

class row_values {
  public:
    // Less than this many tokens a pass is within the noise of measurement.
    static constexpr double least_gain = 0.04;

    struct gain {
        double  value = 0.0; // tokens more than without drafted rows, less those that their time costs
        int32_t n     = 0;   // leading nodes that are verified
    };

    // The nodes to choose from, those that are worth most first.
    void                  clear() { nodes_.clear(); }
    void                  add(const pass_tree & tree, const std::vector<int32_t> & order, size_t n, int32_t text);
    void                  sort(); // needed after the nodes of several texts were added
    [[nodiscard]] int32_t text_of(int32_t i) const { return nodes_[size_t(i)].text; }

    // Sets what drafted rows cost beside n_base others, up to n_most. r: tokens per microsecond. beside: while the
    // draft works.
    void price(const pair_profile & profile, int32_t n_base, int32_t n_most, bool beside, double r);
    // Tokens that could be had in the time that n drafted rows take.
    [[nodiscard]] double cost(int32_t n) const { return cost_[size_t(n)]; }
    // The best rate that the leading nodes allow, in tokens per microsecond; 0: unknown. A few lucky passes may leave a
    // running rate above it, and then the shortest pass would always seem best.
    [[nodiscard]] double best_ratio(const pair_profile & profile, int32_t n_texts, int32_t n_base,
                                    int32_t n_most) const;
    // The leading nodes that are worth most. copy: if a guess is wrong, all that was right before it is evaluated
    // again.
    [[nodiscard]] gain best(int32_t n_base, int32_t n_most, int32_t n_min, bool copy) const;

  private:
    struct node {
        double  chance = 0.0;
        int32_t text   = 0;
        bool    beside = false; // not on the best path: if it is accepted, the next pass evaluates it again
    };
    std::vector<node>                   nodes_;
    std::array<double, n_draft_cap + 2> cost_{};
};

} // namespace duo
