#include "token_tree.h"

#include <algorithm>

namespace duo {

void token_tree::reset(node_id id, token_id token) {
    nodes_.clear();
    nodes_.push_back({.id = id, .token = token});
}

int32_t token_tree::insert(node_id id, node_id parent, token_id token, float logp, int16_t age) {
    const int32_t i_parent = find(parent);
    if (i_parent < 0) {
        return -1;
    }
    const int32_t i_there = child(i_parent, token);
    if (i_there >= 0) {
        return i_there;
    }
    const node & up = at(i_parent);
    nodes_.push_back({.id     = id,
                      .parent = i_parent,
                      .token  = token,
                      .depth  = up.depth + 1,
                      .logp   = logp,
                      .path   = up.path + logp,
                      .age    = age});
    link(size() - 1);
    return size() - 1;
}

void token_tree::forget_rows() {
    for (size_t i = 1; i < nodes_.size(); ++i) {
        nodes_[i].branch = -1;
    }
}

// Children come after their parents, so one pass over the later nodes finds all that are below.
void token_tree::revise(int32_t i, float logp, int16_t age) {
    nodes_[size_t(i)].logp = logp;
    nodes_[size_t(i)].age  = age;
    for (size_t k = size_t(i); k < nodes_.size(); ++k) {
        nodes_[k].path = at(nodes_[k].parent).path + nodes_[k].logp;
    }
}

// The last node becomes the last child of its parent.
void token_tree::link(int32_t i) {
    node & nd = nodes_[size_t(i)];
    node & up = nodes_[size_t(nd.parent)];
    if (up.last >= 0) {
        nd.rank                      = at(up.last).rank + 1;
        nodes_[size_t(up.last)].next = i;
    } else {
        up.first = i;
    }
    up.last = i;
}

int32_t token_tree::find(node_id id) const {
    const auto it =
        std::lower_bound(nodes_.begin(), nodes_.end(), id, [](const node & n, node_id x) { return n.id < x; });
    return it != nodes_.end() && it->id == id && id != no_node ? int32_t(it - nodes_.begin()) : -1;
}

int32_t token_tree::child(int32_t i_parent, token_id token) const {
    int32_t i = at(i_parent).first;
    while (i >= 0 && at(i).token != token) {
        i = at(i).next;
    }
    return i;
}

int32_t token_tree::likeliest_child(int32_t i_parent) const {
    int32_t best = first_child(i_parent);
    for (int32_t i = best; i >= 0; i = at(i).next) {
        best = at(i).logp > at(best).logp ? i : best;
    }
    return best;
}

void token_tree::re_root(int32_t i) {
    if (i == 0) {
        return;
    }
    const float   path  = at(i).path;
    const int32_t depth = at(i).depth;
    moved_.assign(nodes_.size(), -1);
    size_t n = 0;
    for (int32_t j = i; j < size(); ++j) {
        node nd = at(j);
        if (j == i) {
            nd.parent = -1;
            nd.rank   = 0;
        } else if (nd.parent >= i && moved_[size_t(nd.parent)] >= 0) {
            nd.parent = moved_[size_t(nd.parent)];
        } else {
            continue;
        }
        nd.path -= path;
        nd.depth -= depth;
        nd.first = nd.last = nd.next = -1;
        moved_[size_t(j)]            = int32_t(n);
        nodes_[n]                    = nd;
        if (n++ > 0) {
            link(int32_t(n) - 1);
        }
    }
    nodes_.resize(n);
}

void token_tree::chain(size_t n, std::vector<int32_t> & out) const {
    out.clear();
    for (int32_t i = first_child(0); i >= 0 && out.size() < n; i = first_child(i)) {
        out.push_back(i);
    }
}

void token_tree::path_to(int32_t i, std::vector<token_id> & out) const {
    const size_t n = out.size();
    for (; i > 0; i = at(i).parent) {
        out.push_back(at(i).token);
    }
    std::reverse(out.begin() + std::ptrdiff_t(n), out.end());
}

} // namespace duo
