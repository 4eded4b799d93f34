#include "token_tree.h"

#include <algorithm>

namespace duo {

void token_tree::reset(node_id id, token_id token) {
    nodes_.clear();
    nodes_.push_back({.id = id, .token = token});
}

int32_t token_tree::insert(node_id id, node_id parent, token_id token, float logp) {
    const int32_t i_parent = find(parent);
    if (i_parent < 0) {
        return -1;
    }
    int32_t rank = 0;
    for (int32_t i = i_parent + 1; i < size(); ++i) {
        if (at(i).parent == i_parent) {
            if (at(i).token == token) {
                return i;
            }
            ++rank;
        }
    }
    const node & up = at(i_parent);
    nodes_.push_back({.id     = id,
                      .parent = i_parent,
                      .token  = token,
                      .depth  = up.depth + 1,
                      .rank   = rank,
                      .logp   = logp,
                      .path   = up.path + logp});
    return size() - 1;
}

int32_t token_tree::find(node_id id) const {
    const auto it =
        std::lower_bound(nodes_.begin(), nodes_.end(), id, [](const node & n, node_id x) { return n.id < x; });
    return it != nodes_.end() && it->id == id && id != no_node ? int32_t(it - nodes_.begin()) : -1;
}

int32_t token_tree::child(int32_t i_parent, token_id token) const {
    for (int32_t i = i_parent + 1; i < size(); ++i) {
        if (at(i).parent == i_parent && at(i).token == token) {
            return i;
        }
    }
    return -1;
}

int32_t token_tree::first_child(int32_t i_parent) const {
    for (int32_t i = i_parent + 1; i < size(); ++i) {
        if (at(i).parent == i_parent) {
            return i;
        }
    }
    return -1;
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
        moved_[size_t(j)] = int32_t(n);
        nodes_[n++]       = nd;
    }
    nodes_.resize(n);
}

void token_tree::chain(size_t n, std::vector<int32_t> & out) const {
    out.clear();
    for (int32_t i = first_child(0); i >= 0 && out.size() < n; i = first_child(i)) {
        out.push_back(i);
    }
}

int32_t token_tree::chain_length() const {
    int32_t n = 0;
    for (int32_t i = first_child(0); i >= 0; i = first_child(i)) {
        ++n;
    }
    return n;
}

void token_tree::path_to(int32_t i, std::vector<token_id> & out) const {
    const size_t n = out.size();
    for (; i > 0; i = at(i).parent) {
        out.push_back(at(i).token);
    }
    std::reverse(out.begin() + std::ptrdiff_t(n), out.end());
}

} // namespace duo
