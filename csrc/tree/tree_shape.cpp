#include "tree_shape.h"

#include <algorithm>

namespace duo {

tree_shape::tree_shape(std::span<const std::vector<int32_t>> paths) {
    places_.push_back({});
    for (const auto & path : paths) {
        int32_t at = 0;
        for (const int32_t rank : path) {
            int32_t next = child(at, rank);
            if (next < 0) {
                next       = int32_t(places_.size());
                auto & all = places_[size_t(at)].child;
                all.resize(std::max(all.size(), size_t(rank) + 1), -1);
                all[size_t(rank)] = next;
                places_.push_back({.parent = at, .depth = places_[size_t(at)].depth + 1, .child = {}});
            }
            at = next;
        }
    }
}

int32_t tree_shape::depth() const {
    int32_t n = 0;
    for (const place & p : places_) {
        n = std::max(n, p.depth);
    }
    return n;
}

void tree_shape::match(const token_tree & tree, std::vector<int32_t> & out) const {
    out.assign(size_t(tree.size()), -1);
    out[0] = 0;
    for (int32_t i = 1; i < tree.size(); ++i) {
        const int32_t up = out[size_t(tree.at(i).parent)];
        out[size_t(i)]   = up < 0 ? -1 : child(up, tree.at(i).rank);
    }
}

int32_t tree_shape::n_children(int32_t place) const {
    return int32_t(places_[size_t(place)].child.size());
}

} // namespace duo
