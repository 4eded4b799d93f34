// A fixed tree of choices: which children of which nodes are drafted and verified, whatever the text. Medusa's and
// EAGLE's notation: a list of paths, each a list of ranks; [0, 1] is the second best child of the best child.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "token_tree.h"

namespace duo {

class tree_shape {
  public:
    tree_shape() = default;

    // Parts of a path that are not listed themselves are added. Ranks are not negative.
    explicit tree_shape(std::span<const std::vector<int32_t>> paths);

    [[nodiscard]] bool    empty() const { return places_.size() <= 1; }
    [[nodiscard]] int32_t n_nodes() const { return int32_t(places_.size()) - 1; } // without the root
    [[nodiscard]] int32_t depth() const;

    // out[i]: the place of the tree's node i in this shape, -1: none. The root is place 0.
    void match(const token_tree & tree, std::vector<int32_t> & out) const;

    // Best children that are wanted at a place: ranks below this; 0: none.
    [[nodiscard]] int32_t n_children(int32_t place) const;

  private:
    struct place {
        int32_t              parent = -1;
        int32_t              depth  = 0;
        std::vector<int32_t> child; // by rank; -1: not wanted
    };

    [[nodiscard]] int32_t child(int32_t place, int32_t rank) const {
        const auto & all = places_[size_t(place)].child;
        return size_t(rank) < all.size() ? all[size_t(rank)] : -1;
    }

    std::vector<place> places_;
};

} // namespace duo
