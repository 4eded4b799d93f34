// pass_tree on random trees, against brute force.
#include <algorithm>
#include <cmath>
#include <set>

#include "check.h"
#include "plan/pass_tree.h"
#include "random.h"
#include "tree/tree_shape.h"

using namespace duo;
using namespace duo_test;

namespace {

token_tree random_tree(dice & d, int32_t n) {
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
guess_record any_profile(dice & d) {
    guess_record p;
    for (int i = 0; i < 100; ++i) {
        const double q = 0.01 * d.between(1, 99);
        p.on_child(float(std::log(q)), d.chance(q));
        p.on_ngram(d.between(1, 14), d.between(0, 8), d.chance(0.7));
    }
    return p;
}

double chance_of(const token_tree & t, const guess_record & p, int32_t i) {
    double c = 1.0;
    for (; i > 0; i = t.at(i).parent) {
        c *= p.chance(t.at(i).logp);
    }
    return c;
}

std::vector<token_id> path_of(const pass_tree & t, int32_t i) {
    std::vector<token_id> out;
    for (; i >= 0; i = t.nodes()[size_t(i)].parent) {
        out.insert(out.begin(), t.nodes()[size_t(i)].token);
    }
    return out;
}

// What every pass_tree is.
void check_nodes(const pass_tree & t) {
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

TEST(ngrams_merge_with_drafted_nodes) {
    for (uint64_t seed = 0; seed < 1000; ++seed) {
        dice               d(seed);
        const token_tree   t     = random_tree(d, d.between(0, 30));
        const guess_record p     = any_profile(d);
        const double       least = d.chance(0.5) ? 0.0 : 0.01 * d.between(1, 20);
        pass_tree          tree;
        tree.begin(t, p, least);
        const auto     before = tree.nodes();
        const auto     n      = int32_t(before.size());
        const auto     from   = d.chance(0.5) || n == 0 ? -1 : int32_t(d.below(uint32_t(n)));
        ngram_proposal proposal{.tokens = std::vector<token_id>(size_t(d.between(0, 6))), .n_match = d.between(1, 14)};
        auto &         tokens = proposal.tokens;
        for (token_id & x : tokens) {
            x = token_id(d.below(5));
        }
        const int32_t end = tree.add_ngram(from, proposal, p, least);
        check_nodes(tree);
        // Nodes that were there are there still, none surer of itself than before but those on the n-gram's way.
        auto way = from < 0 ? std::vector<token_id>{} : path_of(tree, from);
        way.insert(way.end(), tokens.begin(), tokens.end());
        for (int32_t i = 0; i < n; ++i) {
            const auto & a  = before[size_t(i)];
            const auto & b  = tree.nodes()[size_t(i)];
            const auto   on = path_of(tree, i);
            CHECK(a.token == b.token && a.parent == b.parent && a.i_node == b.i_node && b.chance >= a.chance);
            CHECK(a.chance == b.chance || (on.size() <= way.size() && std::equal(on.begin(), on.end(), way.begin())));
        }
        // New ones are the n-gram's own, each with the chance of its way there. Beside other guesses it has less.
        const auto drafted = [&](int32_t at) {
            double sum = 0.0;
            for (const auto & nd : tree.nodes()) {
                sum += nd.parent == at && nd.i_node >= 0 ? nd.chance : 0.0;
            }
            return std::min(0.999, at < 0 ? sum : sum / tree.nodes()[size_t(at)].chance);
        };
        double  c  = from < 0 ? 1.0 : before[size_t(from)].chance;
        int32_t at = from;
        for (size_t k = 0; k < tokens.size(); ++k) {
            const double own  = p.ngram_chance(proposal.n_match, int32_t(k));
            int32_t      next = -1;
            for (int32_t i = 0; i < int32_t(tree.nodes().size()); ++i) {
                if (tree.nodes()[size_t(i)].parent == at && tree.nodes()[size_t(i)].token == tokens[k]) {
                    next = i;
                }
            }
            const double beside = next >= 0 && next < n ? 0.0 : drafted(at);
            c *= own * (1.0 - beside) / (1.0 - own * beside);
            if (next < 0) {
                CHECK(c < least, "what is left out is improbable");
                break;
            }
            const auto & nd = tree.nodes()[size_t(next)];
            CHECK_EQ(nd.i_node >= 0, next < n);
            CHECK(std::abs(nd.chance - std::max(c, next < n ? before[size_t(next)].chance : 0.0)) < 1e-9);
            c  = nd.chance;
            at = next;
        }
        CHECK_EQ(end, at);
        CHECK_EQ(tree.add_ngram(from, proposal, p, least), end, "once more changes nothing");
    }
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
