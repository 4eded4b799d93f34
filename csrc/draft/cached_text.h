// A text and the tree below it, and what the draft's cache holds of both.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "draft_head.h"
#include "draft_trunk.h"
#include "model/token_model.h"
#include "text/pictures.h"
#include "tree/token_tree.h"

namespace duo {

// Ids of nodes, of all texts that one draft works on. They only grow.
class node_counter {
  public:
    [[nodiscard]] node_id next() { return ++last_; }

  private:
    node_id last_ = no_node;
};

// One for each text. It stays after the text has ended: the next one may begin in the same way.
class cached_text {
  public:
    // Model and pool must outlive it.
    cached_text(const token_model & model, branch_pool & pool);

    // Another text begins. Its last token is committed next, as a child of `id`. pictures: of its prompt.
    void begin(std::span<const token_id> prompt, const picture_spans & pictures, int32_t n_window, node_id id);
    // Node i is right: the text goes on with its path, and it becomes the root.
    void accept(int32_t i);
    // The token after the root became certain, and becomes the root. True: it is a new node, because it was not a
    // child.
    bool commit(token_id token, node_counter & ids);
    // n more rows of the text were evaluated.
    void on_text_rows(int32_t n);
    // A draft head's: rows whose states were left out are made of others, or left out as well.
    void close_gap();

    // The text has ended: frees the branches of the tree; other texts need them.
    void drop_tree();
    // Forgets what the cache holds. False: it could not be cleared.
    bool clear();
    // After clear(): the model has read these tokens, in the trunk's branch.
    void adopt(std::span<const token_id> tokens);
    // A draft head's text, of which it may not have read what came last: all tokens whose states are known.
    void take_known_tokens() { head_->append_tokens(tokens_); }

    [[nodiscard]] const std::vector<token_id> & tokens() const { return tokens_; }     // committed; back() is the root
    [[nodiscard]] const picture_spans &         pictures() const { return pictures_; } // in the prompt
    [[nodiscard]] token_tree &                  tree() { return tree_; }
    [[nodiscard]] draft_trunk &                 trunk() { return trunk_; }
    [[nodiscard]] draft_head *                  head() { return head_ ? &*head_ : nullptr; } // null: the model is none

    // The draft is a head of blocks: only the root is evaluated, and that gives candidates for n_levels positions.
    [[nodiscard]] bool in_blocks() const { return model_.facts().n_levels > 1; }
    // The draft's vocabulary has all tokens.
    [[nodiscard]] bool readable() const { return readable_; }

    // Those of its tokens that are cached. They are its first ones, unless some were left out.
    [[nodiscard]] std::vector<token_id> cached_tokens() const;
    // Rows in the cache, with those of the tree.
    [[nodiscard]] int32_t n_cached() const { return trunk_.n_rows() + (in_blocks() ? 0 : n_expanded()); }
    // Tokens of the text that are to be read and are not in the cache.
    [[nodiscard]] int32_t n_missing() const {
        return int32_t(tokens_.size()) - trunk_.window().n_left_out - trunk_.n_rows();
    }
    // Rows of the text that the next step can evaluate: a draft head needs the target's states for them.
    [[nodiscard]] int32_t n_readable() const;
    // A node's position in the text, and in the cache.
    [[nodiscard]] int32_t pos_of(int32_t i_node) const { return int32_t(tokens_.size()) - 1 + tree_.at(i_node).depth; }
    [[nodiscard]] int32_t row_of(int32_t i_node) const { return trunk_.window().row_of(pos_of(i_node)); }

  private:
    [[nodiscard]] int32_t n_expanded() const;
    void                  prune();

    const token_model &       model_;
    std::vector<token_id>     tokens_;
    picture_spans             pictures_; // in them
    draft_trunk               trunk_;
    std::optional<draft_head> head_;
    token_tree                tree_;            // root: tokens_.back()
    bool                      readable_ = true; // the draft's vocabulary has all of tokens_
};

} // namespace duo
