// Chooses which nodes of one text's tree the draft evaluates next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cached_text.h"
#include "draft_orders.h"
#include "text/request.h"
#include "tree/tree_shape.h"

namespace duo {

// One for each text.
class draft_frontier {
  public:
    // All of them must outlive it.
    draft_frontier(const token_model & model, cached_text & cache, const draft_orders & orders)
        : model_(model), cache_(cache), tree_(cache.tree()), orders_(orders) {}

    void begin(const plan_params & plan);

    // Nodes to expand in the next step: the root if its children are not known, else what the shape wants, else the
    // most probable ones. None: nothing is left to do until the next verdict. n_free: rows that the cache has left.
    void choose(std::vector<int32_t> & nodes, int32_t n_free);
    // Children of node i that the target's tree shape asks for; 0: no shape asks.
    [[nodiscard]] int32_t n_children_wanted(int32_t i) const;

    // A head of blocks: the root's next row is to give so many levels, as many as the target can use.
    [[nodiscard]] int32_t begin_block();
    // That row was evaluated: the best node whose children it can tell. -1: no more are wanted.
    [[nodiscard]] int32_t next_in_block();

  private:
    [[nodiscard]] bool wants_root() const;
    void               choose_below_root(std::vector<int32_t> & nodes, size_t n_most, size_t n_step);
    void               choose_by_worth(std::vector<int32_t> & nodes, size_t n_most) const;
    [[nodiscard]] bool fits(int32_t i_node) const;
    [[nodiscard]] bool in_reach(int32_t i_node) const;
    [[nodiscard]] bool complete() const;

    const token_model &  model_;
    cached_text &        cache_;
    const token_tree &   tree_; // of the text
    const draft_orders & orders_;

    tree_shape           shape_;    // empty: best first
    std::vector<int32_t> places_;   // of all nodes in shape_
    std::vector<int32_t> in_block_; // scratch
    bool                 shape_only_ = false;
    int32_t              n_levels_   = 1; // of the last block
};

} // namespace duo
