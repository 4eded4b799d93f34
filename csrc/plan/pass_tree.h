// What one target pass may verify: the drafted tree as the target knows it, merged with n-grams of the text. Each node
// has the chance that the text goes through it. It also holds the nodes that were chosen, in the order of the pass's
// rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/messages.h"
#include "guess_record.h"
#include "tree/ngram_index.h"
#include "tree/token_tree.h"
#include "tree/tree_shape.h"

namespace duo {

class pass_tree {
  public:
    struct node {
        token_id token  = no_token;
        int32_t  parent = -1;     // index here; -1: the root
        int32_t  depth  = 1;      // below the root
        int32_t  i_node = -1;     // in the target's copy of the drafted tree; -1: it comes from an n-gram
        int16_t  age    = no_age; // node_msg::age
        double   chance = 0;      // that the text goes through it
    };

    // One row after the root's row.
    struct chosen {
        int32_t i_node     = -1; // index in nodes()
        int32_t parent     = -1; // row; -1: the root
        int32_t branch     = 0;  // the first of its branches in the target's cache
        int32_t n_branches = 1;
    };

    // `least`: nodes with a smaller chance are left out.
    void begin(const token_tree & tree, const guess_record & guesses, double least);
    // The same for a fixed shape: only the nodes that have a place in it (tree_shape::match).
    void begin(const token_tree & tree, const guess_record & guesses, const tree_shape & shape,
               std::span<const int32_t> places);
    // Adds a continuation that an n-gram suggests, below node i_from (-1: the root). Returns its last node.
    // share: how much of all continuations seen there was this one. Where the draft guesses something else, both cannot
    // be right, so the continuation has less chance.
    int32_t add_ngram(int32_t i_from, const ngram_proposal & proposal, const guess_record & guesses, double least,
                      double share = 1.0);

    // Nodes by chance: all, or those of the best path. A parent never has less chance than its child, so each leading
    // part of the list is a tree.
    const std::vector<int32_t> & by_chance();
    const std::vector<int32_t> & best_path();
    // Call best_path() first.
    [[nodiscard]] bool on_best_path(int32_t i_node) const { return on_path_[size_t(i_node)]; }

    // The first n of `order` become rows: depth first, best child first, so that the best path stands in branch 0 and
    // without a gap. Nodes that need more than n_branch branches are left out.
    void choose(const std::vector<int32_t> & order, size_t n, int32_t n_branch);

    [[nodiscard]] const std::vector<node> &   nodes() const { return nodes_; }
    [[nodiscard]] const std::vector<chosen> & rows() const { return rows_; }
    [[nodiscard]] int32_t                     drafted_depth() const; // levels of the draft's nodes
    // With a fixed shape: nodes whose children are wanted but have not come yet.
    [[nodiscard]] int32_t      n_open() const { return n_open_; }
    [[nodiscard]] int32_t      n_branches() const { return n_branches_; }
    [[nodiscard]] const node & at_row(int32_t i) const { return nodes_[size_t(rows_[size_t(i)].i_node)]; }
    // Row of the child of row i_row (-1: the root) with that token; -1: none.
    [[nodiscard]] int32_t child_row(int32_t i_row, token_id token) const;
    [[nodiscard]] bool    has_child_row(int32_t i_row) const;
    [[nodiscard]] int32_t depth() const;    // levels of the rows
    [[nodiscard]] double  expected() const; // tokens of a pass over the root and the rows

  private:
    [[nodiscard]] int32_t child(int32_t i_node, token_id token) const;
    [[nodiscard]] double  drafted_below(int32_t i_node) const;
    void                  raise(int32_t i_node, double factor);
    void                  descend(int32_t i_row, int32_t n_branch);

    std::vector<node>    nodes_; // parents before children
    std::vector<int32_t> index_; // scratch: of each node of the drafted tree in nodes_
    std::vector<int32_t> by_chance_;
    std::vector<int32_t> best_path_;
    std::vector<bool>    on_path_;
    std::vector<bool>    below_;  // scratch of raise()
    std::vector<int32_t> picked_; // scratch of choose()
    std::vector<chosen>  rows_;
    int32_t              n_branches_ = 1;
    int32_t              n_open_     = 0;
};

} // namespace duo
