// One text as the draft sees it: its tokens, the tree below them, and what the target wants to have of that tree.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "draft_head.h"
#include "draft_trunk.h"
#include "model/token_model.h"
#include "text/request.h"
#include "tree/token_tree.h"
#include "tree/tree_shape.h"

namespace duo {

// Ids of nodes, of all texts that one draft works on. They only grow.
class node_counter {
  public:
    [[nodiscard]] node_id next() { return ++last_; }

  private:
    node_id last_ = no_node;
};

// Belongs to the draft worker's thread. It chooses what to evaluate; the worker evaluates and sends.
class draft_text {
  public:
    // The target's last orders (see verdict_msg).
    struct orders {
        int32_t n_ahead   = 1; // levels below the root that the target wants
        int32_t n_branch  = 1; // nodes in a step at most
        int32_t n_want    = 0; // pause when the best n_want nodes are known; 0: no such bound
        int32_t n_threads = 0; // of the steps; 0: all that the model was given

        // log of the chance below which a node is not expanded
        float least_path   = -std::numeric_limits<float>::infinity();
        float branch_price = 1.0f; // one node more in a step, as a share of a step over one

        double power = 1.0; // to which its own estimates are right (sharpness.h)
    };

    // slot: its place, in all messages. Model and pool must outlive it.
    draft_text(const token_model & model, branch_pool & pool, int32_t slot)
        : model_(model), slot_(slot), trunk_(pool, model.n_inputs() > 0) {
        if (model.n_inputs() > 0) {
            head_.emplace();
        }
    }

    // ---- from the target

    // The prompt's last token is the root. True: `named` is the node that names it.
    bool begin(const request & req, node_counter & ids, node_msg & named);
    void take_orders(const verdict_msg & v);
    // Re-roots. True: the draft had not guessed the token, and `named` is the node that it made to name it. Throws
    // duo::error if the verdict names an unknown node.
    bool apply(const verdict_msg & v, node_counter & ids, node_msg & named);
    // A row of the target's hidden states, for a draft head.
    void take_features(int32_t pos, token_id token, std::span<const float> features);
    // Lets go of the request.
    void end();
    // After end(): frees the branches of the tree; other texts need them.
    void drop_tree();
    // Forgets what the model's cache holds of this text. False: it could not be cleared.
    bool clear_cache() {
        tree_.forget_rows();
        return trunk_.clear();
    }

    // ---- between texts

    // Tokens of the last text that are cached. They are its first ones, unless some were left out.
    [[nodiscard]] std::vector<token_id> cached() const;
    // How many were left out before those.
    [[nodiscard]] int32_t n_left_out() const { return trunk_.n_text() - trunk_.n_rows(); }
    // A draft head's text, of which it may not have read what came last: all tokens whose states are known.
    void take_known_tokens() { head_->append_tokens(tokens_); }
    // After clear_cache(): the model has read these tokens, in the trunk's branch.
    void adopt(const std::vector<token_id> & tokens) {
        if (head_) {
            head_->clear();
        }
        tokens_ = tokens;
        trunk_.grow(int32_t(tokens.size()));
    }

    // ---- a step

    [[nodiscard]] bool active() const { return req_ != nullptr; }
    // There is something to do.
    [[nodiscard]] bool wants_step() const {
        return active() && !paused_ && !req_->cancelled.load(std::memory_order_relaxed);
    }
    void pause() { paused_ = true; }

    // Nodes to expand in the next step: the root if its children are not known, else what the shape wants, else the
    // most probable ones. None: nothing is left to do until the next verdict. n_free: rows that the cache has left.
    void choose(std::vector<int32_t> & nodes, int32_t n_free);

    // Children of node i that the target's tree shape asks for; 0: no shape asks.
    [[nodiscard]] int32_t n_children_wanted(int32_t i) const;
    // Adds a child.
    void insert(node_id id, node_id parent, token_id token, float logp) { tree_.insert(id, parent, token, logp); }

    [[nodiscard]] const request &               req() const { return *req_; } // while active()
    [[nodiscard]] const orders &                wanted() const { return orders_; }
    [[nodiscard]] const std::vector<token_id> & tokens() const { return tokens_; } // committed; back() is the root
    [[nodiscard]] const token_tree &            tree() const { return tree_; }
    [[nodiscard]] draft_trunk &                 trunk() { return trunk_; }
    [[nodiscard]] int32_t                       slot() const { return slot_; }
    // Rows in the cache that belong to this text.
    [[nodiscard]] int32_t n_cached() const { return trunk_.n_rows() + (in_blocks() ? 0 : n_expanded()); }
    // Tokens of the text that are to be read and are not in the cache.
    [[nodiscard]] int32_t n_missing() const {
        return int32_t(tokens_.size()) - trunk_.window().n_left_out - trunk_.n_rows();
    }
    [[nodiscard]] int32_t pos_of(int32_t i_node) const { return int32_t(tokens_.size()) - 1 + tree_.at(i_node).depth; }
    // Its position in the cache.
    [[nodiscard]] int32_t row_of(int32_t i_node) const { return trunk_.window().row_of(pos_of(i_node)); }

    // Rows of the text that the next step can evaluate: a draft head needs the target's states for them.
    [[nodiscard]] int32_t n_readable() const {
        return head_ ? std::min(n_missing(), head_->n_ready(trunk_.n_text())) : n_missing();
    }

    // The draft is a head of blocks: only the root is evaluated, and that gives candidates for n_levels() positions.
    [[nodiscard]] bool in_blocks() const { return model_.n_levels() > 1; }
    // The root's next row is to give so many levels: as many as the target can use.
    [[nodiscard]] int32_t begin_block();
    // That row was evaluated: the best nodes whose children it can tell. None: no more are wanted.
    void choose_in_block(std::vector<int32_t> & nodes);

    // Node i was evaluated in that branch.
    void mark_expanded(int32_t i, int32_t branch) { tree_.mark_expanded(i, branch); }
    // A better estimate of node i.
    void revise(int32_t i, float logp) { tree_.revise(i, logp); }

    // Only if the model is a draft head; else null.
    [[nodiscard]] const draft_head * head() const { return head_ ? &*head_ : nullptr; }
    // What node_msg::age says of the children of node i, which was evaluated.
    [[nodiscard]] int16_t age_below(int32_t i) const;
    // The head's state after node i, which was evaluated.
    void keep_state(int32_t i, std::span<const float> state);
    // n rows of the text were evaluated, made of true states.
    void on_true_rows(int32_t n);

  private:
    bool                  commit(token_id token, node_counter & ids, node_msg & named);
    void                  choose_below_root(std::vector<int32_t> & nodes, size_t n_most, size_t n_step);
    void                  choose_by_worth(std::vector<int32_t> & nodes, size_t n_most) const;
    [[nodiscard]] bool    fits(int32_t i_node) const;
    [[nodiscard]] bool    in_reach(int32_t i_node) const;
    [[nodiscard]] bool    complete() const;
    [[nodiscard]] int32_t n_expanded() const;
    [[nodiscard]] bool    is_stale() const;
    void                  choose_root(std::vector<int32_t> & nodes);

    const token_model & model_;
    const int32_t       slot_;

    const request *           req_ = nullptr; // null: no work
    std::vector<token_id>     tokens_;
    draft_trunk               trunk_;
    std::optional<draft_head> head_;
    token_tree                tree_;   // root: tokens_.back()
    tree_shape                shape_;  // empty: best first
    std::vector<int32_t>      places_; // of all nodes in shape_
    orders                    orders_;
    int32_t                   n_levels_ = 1;    // of the last block
    bool                      readable_ = true; // the draft's vocabulary has all of tokens_
    bool                      paused_   = false;
};

} // namespace duo
