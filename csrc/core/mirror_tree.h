// The target's picture of the draft's tree, and what to make of messages that come late.
//
// Only the draft gives ids. When the target commits a token that it does not know as a node, the new root has no id
// yet: it is *unnamed* until the draft sends the node for it (which the draft had grown already, or makes when the
// verdict arrives). Committed tokens are named in order, as nodes come in order with parents first; a node whose parent
// is neither in the tree nor the last named committed token is stale and dropped unread.
#pragma once

#include <cstdint>
#include <span>

#include "messages.h"
#include "token_tree.h"

namespace duo {

class mirror_tree {
  public:
    static constexpr int32_t n_most = 4096; // nodes; a draft keeps to fewer, a host that does not must do no harm

    enum class news : uint8_t {
        grown,       // a node more in the tree
        named_right, // names a token that was committed without it: the draft had it, or has it now
        guess_wrong, // a guess at a committed position that came too late and would have been wrong
        stale,
    };

    // A new request: `id` is its request_node, `text` its prompt.
    void begin(node_id id, std::span<const token_id> text);

    // A node message; `text` is prompt + committed tokens.
    news insert(const node_msg & msg, std::span<const token_id> text);

    // Commits the nodes down to i_accepted (0: none) and `token` after them. True (a hit): that token was a node as
    // well. `text` already holds all of them.
    bool commit(int32_t i_accepted, token_id token, std::span<const token_id> text);

    // What a verdict about node i has to name: its id, or no_node for a root without one.
    [[nodiscard]] node_id name_of(int32_t i) const { return i == 0 && !named() ? no_node : tree_.at(i).id; }

    // The root has an id, so nodes below it can be known.
    [[nodiscard]] bool named() const { return n_named_ == n_text_; }

    // The draft does not grow this tree further (see node_msg::kind::pause).
    void pause(node_id root) { paused_ = paused_ || (named() && root == tree_.root().id); }

    [[nodiscard]] bool paused() const { return paused_; }

    [[nodiscard]] const token_tree & tree() const { return tree_; }

  private:
    token_tree tree_;               // below the root; root().id is of meaning if named()
    node_id    named_id_ = no_node; // id of the last named committed token
    size_t     n_named_  = 0;       // committed tokens up to and including that one
    size_t     n_text_   = 0;       // committed tokens, the root included
    bool       paused_   = false;
};

} // namespace duo
