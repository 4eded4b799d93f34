// The target's copy of the draft's tree. It also decides what to do with messages that come late.
//
// Only the draft gives ids. When the target commits a token that is not a node of its copy, the new root has no id: it
// is *unnamed*. The draft sends a node for it: it had made that node already, or makes it when the verdict arrives.
// Nodes come in order and parents come first, so committed tokens are named in order. A node is stale, and is dropped,
// if its parent is neither in the tree nor the last named committed token.
#pragma once

#include <cstdint>
#include <span>

#include "base/messages.h"
#include "token_tree.h"

namespace duo {

class mirror_tree {
  public:
    static constexpr int32_t n_most = 4096; // nodes; a correct draft makes fewer, and a faulty host must do no harm

    enum class news : uint8_t {
        grown,       // the tree has one more node
        revised,     // a better estimate of a node
        named_right, // names a token that was committed before the node came
        guess_wrong, // another token at a committed position: it came too late, and was wrong
        stale,
    };

    // A new request: `id` is its request_node, `text` its prompt.
    void begin(node_id id, std::span<const token_id> text);

    // A node message; `text` is prompt + committed tokens.
    news insert(const node_msg & msg, std::span<const token_id> text);

    // Commits the nodes down to i_accepted (0: none) and `token` after them. `text` already holds all of them. True (a
    // hit): that token was a node too.
    bool commit(int32_t i_accepted, token_id token, std::span<const token_id> text);

    // No node is `token` below node i, whose children are known: what the draft evaluates below it is of no use.
    [[nodiscard]] bool lacks(int32_t i, token_id token) const;

    // The id that a verdict about node i has to name. no_node: the root, which has no id yet.
    [[nodiscard]] node_id name_of(int32_t i) const { return i == 0 && !named() ? no_node : tree_.at(i).id; }

    // The root has an id, so nodes below it can be matched.
    [[nodiscard]] bool named() const { return n_named_ == n_text_; }

    // The draft does not grow this tree further (see node_msg::kind::pause).
    void pause(node_id root) { paused_ = paused_ || (named() && root == tree_.root().id); }

    [[nodiscard]] bool paused() const { return paused_; }

    [[nodiscard]] const token_tree & tree() const { return tree_; }

  private:
    token_tree tree_;               // root().id is valid only if named()
    node_id    named_id_ = no_node; // id of the last named committed token
    size_t     n_named_  = 0;       // committed tokens up to and including that one
    size_t     n_text_   = 0;       // committed tokens, the root included
    bool       paused_   = false;
};

} // namespace duo
