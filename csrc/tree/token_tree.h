// The tree of tokens that may follow the last committed one. The draft grows it and the target prunes it. Each keeps a
// copy.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/messages.h"

namespace duo {

// Index 0 is the root, the last committed token. Parents come before children, and ids grow with the index.
class token_tree {
  public:
    struct node {
        node_id  id     = no_node;
        int32_t  parent = -1; // index; -1: root
        token_id token  = no_token;
        int32_t  depth  = 0;  // root: 0
        int32_t  rank   = 0;  // among its siblings, in the order they came: best first
        int32_t  first  = -1; // its first child; -1: none
        int32_t  last   = -1;
        int32_t  next   = -1;     // the sibling that came after it; -1: none
        float    logp   = 0.0f;   // draft's, of this token
        float    path   = 0.0f;   // sum of logp from the root
        int32_t  branch = -1;     // draft: the branch of its cache that holds the path down to here; -1: not evaluated
        int16_t  age    = no_age; // target: node_msg::age

        [[nodiscard]] bool expanded() const { return branch >= 0; }
    };

    void reset(node_id id, token_id token);

    // Index of the new node; -1: the parent is unknown (pruned, or of an earlier request), so the message was late. If
    // the parent already has a child with that token, returns that child. `id` must be above all ids before it.
    int32_t insert(node_id id, node_id parent, token_id token, float logp, int16_t age = no_age);

    [[nodiscard]] int32_t find(node_id id) const;                                            // -1: not there
    [[nodiscard]] int32_t child(int32_t i_parent, token_id token) const;                     // -1: none
    [[nodiscard]] int32_t first_child(int32_t i_parent) const { return at(i_parent).first; } // the best; -1: none

    // Makes node i the root and drops all nodes that are not below it.
    void re_root(int32_t i);

    // Renames the root: from now on, children of `id` are its children.
    void name_root(node_id id) { nodes_[0].id = id; }

    // The node's row was evaluated in `branch`, and its children are known.
    void mark_expanded(int32_t i, int32_t branch) { nodes_[size_t(i)].branch = branch; }

    // No row below the root counts as evaluated any more.
    void forget_rows();

    // A better estimate of node i, below the root.
    void revise(int32_t i, float logp, int16_t age = no_age);
    // The most probable child, by the draft; the older one of two. -1: none.
    [[nodiscard]] int32_t likeliest_child(int32_t i_parent) const;

    // The chain of best first children: indices from below the root, at most n.
    void chain(size_t n, std::vector<int32_t> & out) const;

    // Tokens from below the root down to node i, appended.
    void path_to(int32_t i, std::vector<token_id> & out) const;

    // The `out.size()` unexpanded nodes with the most probable paths, best first, for which `wanted(i)` holds. Returns
    // how many. Equal paths: the older node first.
    template <typename Wanted> size_t frontier(std::span<int32_t> out, Wanted wanted) const {
        size_t n = 0;
        for (int32_t i = 0; i < size(); ++i) {
            const node & nd = at(i);
            if (nd.expanded() || !wanted(i)) {
                continue;
            }
            size_t j = n < out.size() ? n++ : n;
            if (j == out.size() && (j == 0 || at(out[j - 1]).path >= nd.path)) {
                continue;
            }
            for (j = j == out.size() ? j - 1 : j; j > 0 && at(out[j - 1]).path < nd.path; --j) {
                out[j] = out[j - 1];
            }
            out[j] = i;
        }
        return n;
    }

    [[nodiscard]] const node & at(int32_t i) const { return nodes_[size_t(i)]; }
    [[nodiscard]] const node & root() const { return nodes_.front(); }
    [[nodiscard]] int32_t      size() const { return int32_t(nodes_.size()); }

  private:
    void link(int32_t i);

    std::vector<node>    nodes_{1};
    std::vector<int32_t> moved_; // re_root's scratch: new index of each node, -1 dropped
};

} // namespace duo
