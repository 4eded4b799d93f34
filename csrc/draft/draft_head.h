// The hidden states that a draft head (EAGLE-3, arXiv 2503.01840; MTP, arXiv 2412.19437) needs besides the tokens of
// a text: the target's for the text, and the head's own for the tree below it.
//
// The head's row of the token at position p is made of that token and a state of position p - 1. Rows of the text are
// made of the target's states (true ones), rows of the tree of the head's own. A row at position 0 does not exist.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/messages.h"
#include "tree/token_tree.h"

namespace duo {

// One for each text; belongs to the draft worker's thread.
class draft_head {
  public:
    // ---- the target's states, from which rows of the text will be made

    // They follow those before, or there is a gap: then only what comes after it counts (see bridge()).
    void take(int32_t pos, token_id token, std::span<const float> features);

    // Another text begins: keeps the states of the tokens that both begin with.
    void begin(std::span<const token_id> old_text, std::span<const token_id> text);
    // Forgets all of them.
    void clear() { run_.clear(); }

    // Rows of the text that can be made from position `pos` on.
    [[nodiscard]] int32_t n_ready(int32_t pos) const;
    // The first position of a row that can be made; `pos` if the one there can, or none can.
    [[nodiscard]] int32_t first_ready(int32_t pos) const;
    // States that were left out before the first one that is known are taken to be like it, so that rows from position
    // `pos` on can be made. They say little of their tokens; what the rows before them hold stays of use.
    void bridge(int32_t pos);
    // Appends the states of n rows from position `pos` on: those of the positions before them.
    void append(int32_t pos, int32_t n, std::vector<float> & out) const;
    // Appends the tokens after the text's whose states are known: the target was ahead when the text ended.
    void append_tokens(std::vector<token_id> & text) const;
    // Rows before position `pos` have been made.
    void drop_before(int32_t pos);

    // ---- the head's own states, from which rows of the tree are made

    // The state after node i of the tree, which was evaluated, and its parent before it.
    void keep(const token_tree & tree, int32_t i, std::span<const float> state);
    // Of an evaluated node.
    [[nodiscard]] const float * state_of(node_id node) const { return nodes_.at(node).state.data(); }
    // What node_msg::age says of its children. A head of blocks keeps no states, so these have none.
    [[nodiscard]] int16_t age_below(node_id node) const;
    // Some state in the tree is so old that it should be made anew, from the root.
    [[nodiscard]] bool is_stale(const token_tree & tree) const;
    // Forgets nodes that are not in the tree, or not evaluated in it.
    void prune(const token_tree & tree);

  private:
    struct true_state {
        token_id           token = no_token;
        std::vector<float> features;
    };
    struct own_state {
        std::vector<float> state;
        int32_t            age = 0; // the head's own steps since the last true state
    };

    [[nodiscard]] int32_t end() const { return first_ + int32_t(run_.size()); }

    int32_t                                first_ = 0; // position of run_.front()
    std::deque<true_state>                 run_;       // without a gap
    std::unordered_map<node_id, own_state> nodes_;
};

} // namespace duo
