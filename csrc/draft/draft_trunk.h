// Tracks which branch of the draft's cache holds which path of a text's tree.
//
// The trunk is the branch that the text grows in. Each branch holds the text and the path down to one node, its tip. A
// node that follows a tip grows that branch. A node that follows any other evaluated node gets a branch of its own,
// which shares the cells of the path. With a recurrent state, all nodes do. Branches whose path leaves the tree are
// freed.
//
// The trunk of a draft head holds rows of the text only, which are made of the target's states. The tree's rows are
// made of the head's own, so they are always in other branches, and no branch becomes the trunk.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "branch_pool.h"
#include "text/draft_window.h"
#include "text/pictures.h"
#include "tree/token_tree.h"

namespace duo {

// One for each text.
class draft_trunk {
  public:
    // Takes its first branch. Throws duo::error if the pool has none. The pool must outlive it.
    explicit draft_trunk(branch_pool & pool, bool of_head = false);

    // Another text: keeps the tokens that both texts begin with, and decides which ones are left out. n_window: last
    // tokens that are read (draft_reading::of); a draft head and a recurrent state read all. pictures: of the text.
    void begin(std::span<const token_id> old_text, std::span<const token_id> text, int32_t n_window = n_window_all,
               const picture_spans & pictures = {});

    // The tree is about to be re-rooted at node i, at position `pos` of the text.
    void re_root(const token_tree & tree, int32_t i, int32_t pos);
    // After that: frees the branches that no node of the tree is in.
    void prune(const token_tree & tree);

    // Which tokens of the text it holds, and where. Positions below are those of the text.
    [[nodiscard]] const draft_window & window() const { return window_; }
    // Leading rows that are cached, in branch().
    [[nodiscard]] int32_t n_rows() const { return n_rows_; }
    // Leading tokens of the text that are cached or left out.
    [[nodiscard]] int32_t n_text() const { return n_rows_ <= window_.n_first ? n_rows_ : window_.pos_of(n_rows_); }
    // Tokens among those that were left out.
    [[nodiscard]] int32_t n_left_out() const { return n_text() - n_rows_; }
    [[nodiscard]] int32_t branch() const { return trunk_; }
    // n more rows were evaluated.
    void grow(int32_t n);
    // A draft head's: forgets them. The next row that comes is at position n; what is before it counts as cached.
    void restart(int32_t n);

    // A branch for node i at position `pos`, whose parent is evaluated. The node counts as cached in it. -1: no branch
    // is free.
    [[nodiscard]] int32_t take(const token_tree & tree, int32_t i, int32_t pos);
    // take() would find one.
    [[nodiscard]] bool can_take(const token_tree & tree, int32_t i, int32_t pos) const;
    // The row of the node that take() gave `branch` to was not evaluated. row: its position in the cache.
    void give_back(int32_t branch, int32_t row);

    // The text has ended: frees all branches but the one that holds it.
    void keep_text();
    // Keeps only the first n tokens of the text (-1: all) and moves them to the first free branch.
    void keep_as_base(int32_t n);
    // Forgets everything. False: the model could not.
    bool clear();

  private:
    [[nodiscard]] bool follows_tip(const token_tree & tree, int32_t i, int32_t row) const;
    void               drop(size_t j);

    branch_pool &        pool_;
    const bool           of_head_;
    std::vector<int32_t> branches_; // that the text has, the trunk among them
    std::vector<bool>    in_use_;   // scratch of prune()
    draft_window         window_;
    int32_t              trunk_  = 0;
    int32_t              n_rows_ = 0;
};

} // namespace duo
