// For the tests of pass_tree: random drafted trees, and what holds for every tree of a pass.
#pragma once

#include <cmath>
#include <set>

#include "check.h"
#include "plan/pass_tree.h"
#include "random.h"

namespace duo_test {

using namespace duo;

inline token_tree random_tree(dice & d, int32_t n) {
    token_tree t;
    t.reset(1, 0);
    for (int32_t i = 0; i < n; ++i) {
        const auto up = d.chance(0.5) ? t.size() - 1 : int32_t(d.below(uint32_t(t.size())));
        // Equal chances happen, too.
        const float logp = d.chance(0.3) ? -0.7f : -0.01f * float(d.below(400));
        t.insert(node_id(i) + 2, t.at(up).id, token_id(d.below(5)), logp);
    }
    return t;
}

// Learnt from a draft that is right as often as it says, so that chances are not all the same.
inline guess_record any_profile(dice & d) {
    guess_record p;
    for (int i = 0; i < 100; ++i) {
        const double q = 0.01 * d.between(1, 99);
        p.on_child(float(std::log(q)), d.chance(q));
        p.on_ngram(d.between(1, 14), d.between(0, 8), d.chance(0.7));
    }
    return p;
}

inline double chance_of(const token_tree & t, const guess_record & p, int32_t i) {
    double c = 1.0;
    for (; i > 0; i = t.at(i).parent) {
        c *= p.chance(t.at(i).logp);
    }
    return c;
}

inline std::vector<token_id> path_of(const pass_tree & t, int32_t i) {
    std::vector<token_id> out;
    for (; i >= 0; i = t.nodes()[size_t(i)].parent) {
        out.insert(out.begin(), t.nodes()[size_t(i)].token);
    }
    return out;
}

// What every pass_tree is.
inline void check_nodes(const pass_tree & t) {
    std::set<std::vector<token_id>> paths;
    for (int32_t i = 0; i < int32_t(t.nodes().size()); ++i) {
        const auto & nd = t.nodes()[size_t(i)];
        REQUIRE(nd.parent >= -1 && nd.parent < i, "parents before children");
        CHECK_EQ(nd.depth, nd.parent < 0 ? 1 : t.nodes()[size_t(nd.parent)].depth + 1);
        CHECK(nd.chance > 0.0 && nd.chance < (nd.parent < 0 ? 1.0 : t.nodes()[size_t(nd.parent)].chance),
              "chances fall along a path");
        CHECK(paths.insert(path_of(t, i)).second, "no path twice");
    }
}

} // namespace duo_test
