// pass_tree on random trees, against brute force.
#include <algorithm>
#include <set>

#include "pass_trees.h"
#include "tree/tree_shape.h"

using namespace duo;
using namespace duo_test;

namespace {

// Rows depth first with their parents before them, and each in exactly the branches of the leaves below it.
void check_rows(const pass_tree & t, const std::vector<int32_t> & order, size_t n, int32_t n_branch) {
    const auto & rows = t.rows();
    const auto   top  = std::vector<int32_t>(order.begin(), order.begin() + std::ptrdiff_t(std::min(n, order.size())));
    std::set<int32_t> seen;
    int32_t           n_leaves = 0;
    for (int32_t i = 0; i < int32_t(rows.size()); ++i) {
        const auto & r = rows[size_t(i)];
        REQUIRE(r.parent >= -1 && r.parent < i);
        CHECK(std::find(top.begin(), top.end(), r.i_node) != top.end(), "chosen from the order's beginning");
        CHECK(seen.insert(r.i_node).second);
        CHECK_EQ(t.at_row(i).parent, r.parent < 0 ? -1 : rows[size_t(r.parent)].i_node, "connected");
        CHECK_EQ(t.child_row(r.parent, t.at_row(i).token), i);
        const bool leaf = !t.has_child_row(i);
        // Depth first: the next row is the child of this one, or this one is a leaf.
        CHECK(leaf || rows[size_t(i) + 1].parent == i);
        if (leaf) {
            CHECK_EQ(r.n_branches, 1);
            CHECK_EQ(r.branch, n_leaves++);
        }
        // Leaves below a row, by brute force.
        std::vector<int32_t> below;
        for (int32_t j = i; j < int32_t(rows.size()); ++j) {
            int32_t up = j;
            while (up > i) {
                up = rows[size_t(up)].parent;
            }
            if (up == i && !t.has_child_row(j)) {
                below.push_back(rows[size_t(j)].branch);
            }
        }
        REQUIRE(!below.empty());
        CHECK_EQ(below.front(), r.branch);
        CHECK_EQ(int32_t(below.size()), r.n_branches);
        CHECK_EQ(below.back(), r.branch + r.n_branches - 1);
    }
    CHECK_EQ(t.n_branches(), std::max(1, n_leaves));
    CHECK(t.n_branches() <= n_branch, "no more branches than there are");
    if (n_leaves < n_branch) {
        CHECK_EQ(rows.size(), top.size(), "nothing is left out where branches are left");
    }
    // The best children in branch 0, from the root on and without a gap.
    int32_t up = -1;
    for (int32_t i = 0; i < int32_t(rows.size()); ++i) {
        CHECK_EQ(rows[size_t(i)].branch == 0, rows[size_t(i)].parent == up && up == i - 1);
        if (rows[size_t(i)].branch == 0) {
            for (const int32_t other : top) {
                CHECK(t.nodes()[size_t(other)].parent != t.at_row(i).parent ||
                      t.nodes()[size_t(other)].chance <= t.at_row(i).chance);
            }
            up = i;
        }
    }
}

} // namespace

TEST(chances_multiply) {
    for (uint64_t seed = 0; seed < 300; ++seed) {
        dice               d(seed);
        const token_tree   t     = random_tree(d, d.between(0, 60));
        const guess_record p     = any_profile(d);
        const double       least = d.chance(0.3) ? 0.0 : 0.01 * d.between(1, 30);
        pass_tree          tree;
        tree.begin(t, p, least);
        check_nodes(tree);
        size_t n = 0;
        for (int32_t i = 1; i < t.size(); ++i) { // in the same order, those with chance enough
            const double c = chance_of(t, p, i);
            if (c < least) {
                continue;
            }
            REQUIRE(n < tree.nodes().size());
            const auto & nd = tree.nodes()[n++];
            CHECK_EQ(nd.i_node, i);
            CHECK_EQ(nd.token, t.at(i).token);
            CHECK(std::abs(nd.chance - c) < 1e-9);
        }
        CHECK_EQ(n, tree.nodes().size());
    }
}

TEST(best_path_and_order) {
    for (uint64_t seed = 0; seed < 300; ++seed) {
        dice      d(seed);
        pass_tree tree;
        tree.begin(random_tree(d, d.between(0, 60)), any_profile(d), 0.0);
        const auto order = tree.by_chance();
        REQUIRE_EQ(order.size(), tree.nodes().size());
        std::set<int32_t> done{-1};
        for (size_t i = 0; i < order.size(); ++i) {
            const auto & nd = tree.nodes()[size_t(order[i])];
            CHECK(i == 0 || nd.chance <= tree.nodes()[size_t(order[i - 1])].chance);
            CHECK(done.count(nd.parent) == 1, "any beginning is a tree");
            CHECK(done.insert(order[i]).second);
        }
        const auto path = tree.best_path();
        int32_t    up   = -1;
        for (const int32_t i : path) {
            CHECK_EQ(tree.nodes()[size_t(i)].parent, up);
            for (const auto & nd : tree.nodes()) {
                CHECK(nd.parent != up || nd.chance <= tree.nodes()[size_t(i)].chance);
            }
            up = i;
        }
        for (const auto & nd : tree.nodes()) {
            CHECK(nd.parent != up, "down to a leaf");
        }
    }
}

TEST(chosen_rows) {
    int n_left_out = 0;
    for (uint64_t seed = 0; seed < 2000; ++seed) {
        dice       d(seed);
        pass_tree  tree;
        const auto p = any_profile(d);
        tree.begin(random_tree(d, d.between(0, 40)), p, 0.0);
        if (d.chance(0.3)) {
            tree.add_ngram(-1, {.tokens = {1, 2, 3, 4, 1}, .n_match = 4}, p, 0.0);
        }
        for (const bool wide : {true, false}) {
            const auto order = wide ? tree.by_chance() : tree.best_path();
            for (int k = 0; k < 4; ++k) {
                const auto    n        = size_t(d.below(uint32_t(order.size()) + 3));
                const int32_t n_branch = d.between(1, 9);
                tree.choose(order, n, n_branch);
                check_rows(tree, order, n, n_branch);
                n_left_out += tree.rows().size() < std::min(n, order.size()) ? 1 : 0;
                int32_t depth = 0;
                for (size_t i = 0; i < tree.rows().size(); ++i) {
                    depth = std::max(depth, tree.at_row(int32_t(i)).depth);
                }
                CHECK_EQ(tree.depth(), depth);
                CHECK_EQ(tree.child_row(-1, 99), -1);
                if (!wide) {
                    CHECK_EQ(tree.n_branches(), 1);
                    CHECK_EQ(tree.rows().size(), std::min(n, order.size()));
                }
            }
        }
        tree.choose({}, 0, 4);
        CHECK(tree.rows().empty() && tree.n_branches() == 1 && tree.depth() == 0 && !tree.has_child_row(-1));
    }
    CHECK(n_left_out > 300, std::to_string(n_left_out));
}

TEST(a_fixed_shape_uses_only_its_nodes) {
    for (uint64_t seed = 0; seed < 500; ++seed) {
        dice                              d(seed);
        const token_tree                  t = random_tree(d, d.between(0, 40));
        const guess_record                p = any_profile(d);
        std::vector<std::vector<int32_t>> paths(size_t(d.between(1, 6)));
        for (auto & path : paths) {
            path.resize(size_t(d.between(1, 4)));
            for (int32_t & rank : path) {
                rank = d.between(0, 2);
            }
        }
        std::vector<int32_t> places;
        const tree_shape     shape(paths);
        shape.match(t, places);
        pass_tree tree;
        tree.begin(t, p, shape, places);
        check_nodes(tree);
        std::set<int32_t> have;
        for (const auto & nd : tree.nodes()) {
            have.insert(nd.i_node);
            CHECK_EQ(nd.parent < 0 ? 0 : tree.nodes()[size_t(nd.parent)].i_node, t.at(nd.i_node).parent);
            CHECK(std::abs(nd.chance - chance_of(t, p, nd.i_node)) < 1e-9);
        }
        int32_t n_open = 0;
        for (int32_t i = 0; i < t.size(); ++i) {
            const int32_t place = places[size_t(i)];
            CHECK_EQ(i == 0 || have.count(i) == 1, place >= 0);
            n_open += place >= 0 && shape.n_children(place) > 0 && t.first_child(i) < 0 ? 1 : 0;
        }
        CHECK_EQ(tree.n_open(), n_open);
    }
}
