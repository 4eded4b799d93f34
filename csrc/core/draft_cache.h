// Which branch of the draft's cache holds which path of its tree.
//
// A branch holds the text and the path down to one node, its tip. A node that follows a tip grows that branch; a node
// that follows any other evaluated node gets a branch of its own, which shares the cells of the path (in llama.cpp
// llama_memory_seq_cp, with one buffer for all sequences: no data move). Branches whose path leaves the tree are freed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "token_model.h"
#include "token_tree.h"

namespace duo {

class draft_cache {
  public:
    explicit draft_cache(token_model & model) : model_(model), length_(size_t(model.n_branch()), 0) {}

    // Another text: keeps what the two have in common.
    void begin(std::span<const token_id> old_text, std::span<const token_id> text);

    // The tree is about to be re-rooted at node i, at position `pos` of the text.
    void re_root(const token_tree & tree, int32_t i, int32_t pos);
    // After that: frees the branches that no node of the tree is in.
    void prune(const token_tree & tree);

    // Leading tokens of the text that are cached, in the branch that the text grows in.
    [[nodiscard]] int32_t n_text() const { return n_text_; }
    [[nodiscard]] int32_t trunk() const { return trunk_; }
    void                  grow_text(int32_t n);

    // A branch for node i at position `pos`, whose parent is evaluated; the node is counted as cached in it. -1: none
    // is free.
    [[nodiscard]] int32_t take(const token_tree & tree, int32_t i, int32_t pos);
    // take() would find one.
    [[nodiscard]] bool can_take(const token_tree & tree, int32_t i, int32_t pos) const;
    // The row of the node that take() gave `branch` to was not evaluated.
    void give_back(int32_t branch, int32_t pos);

    // Forgets everything. False: the model could not.
    bool clear();

  private:
    void cut(int32_t branch, int32_t pos);

    token_model &        model_;
    std::vector<int32_t> length_; // tokens in each branch; 0: free
    std::vector<bool>    used_;   // scratch of prune()
    int32_t              trunk_  = 0;
    int32_t              n_text_ = 0;
};

} // namespace duo
