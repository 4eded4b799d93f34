// token_tree against a model that keeps every node in maps and looks everything up by brute force.
#include <algorithm>
#include <cmath>
#include <map>

#include "check.h"
#include "random.h"
#include "tree/token_tree.h"

using namespace duo;
using namespace duo_test;

namespace {

// Obviously right, and slow: nodes by id, in the order made.
struct model_tree {
    struct node {
        node_id  parent   = no_node;
        token_id token    = no_token;
        double   logp     = 0.0;
        bool     expanded = false;
    };

    std::map<node_id, node> nodes;
    node_id                 root = no_node;

    int depth(node_id id) const {
        int n = 0;
        for (; id != root; id = nodes.at(id).parent) {
            ++n;
        }
        return n;
    }

    double path(node_id id) const {
        double sum = 0.0;
        for (; id != root; id = nodes.at(id).parent) {
            sum += nodes.at(id).logp;
        }
        return sum;
    }

    std::vector<token_id> tokens(node_id id) const {
        std::vector<token_id> out;
        for (; id != root; id = nodes.at(id).parent) {
            out.insert(out.begin(), nodes.at(id).token);
        }
        return out;
    }

    node_id child(node_id parent, token_id token) const {
        for (const auto & [id, nd] : nodes) {
            if (id != root && nd.parent == parent && nd.token == token) {
                return id;
            }
        }
        return no_node;
    }

    node_id first_child(node_id parent) const {
        for (const auto & [id, nd] : nodes) {
            if (id != root && nd.parent == parent) {
                return id;
            }
        }
        return no_node;
    }

    bool below(node_id id, node_id top) const {
        for (;; id = nodes.at(id).parent) {
            if (id == top) {
                return true;
            }
            if (id == root) {
                return false;
            }
        }
    }

    void re_root(node_id id) {
        std::map<node_id, node> kept;
        for (const auto & [x, nd] : nodes) {
            if (below(x, id)) {
                kept.emplace(x, nd);
            }
        }
        nodes = std::move(kept);
        root  = id;
    }
};

// Everything that can be asked of a tree gives the same answer.
void compare(const token_tree & tree, const model_tree & model, std::vector<node_id> & ids) {
    REQUIRE_EQ(size_t(tree.size()), model.nodes.size());
    CHECK_EQ(tree.root().id, model.root);
    ids.clear();
    for (int32_t i = 0; i < tree.size(); ++i) {
        const auto & nd = tree.at(i);
        REQUIRE(model.nodes.contains(nd.id));
        const auto & m = model.nodes.at(nd.id);
        ids.push_back(nd.id);
        CHECK_EQ(tree.find(nd.id), i);
        CHECK_EQ(nd.token, m.token);
        CHECK_EQ(nd.expanded(), m.expanded);
        CHECK_EQ(nd.depth, model.depth(nd.id));
        CHECK(std::abs(nd.path - model.path(nd.id)) < 1e-3);
        CHECK(i == 0 ? nd.parent == -1 : nd.parent < i && tree.at(nd.parent).id == m.parent);
        std::vector<token_id> path{-7};
        tree.path_to(i, path);
        CHECK_EQ(path.front(), -7);
        CHECK(std::vector<token_id>(path.begin() + 1, path.end()) == model.tokens(nd.id));
        const node_id first = model.first_child(nd.id);
        CHECK_EQ(tree.first_child(i), first == no_node ? -1 : tree.find(first));
        for (token_id t = 0; t < 5; ++t) {
            const node_id c = model.child(nd.id, t);
            CHECK_EQ(tree.child(i, t), c == no_node ? -1 : tree.find(c));
        }
    }
    std::vector<int32_t> chain;
    tree.chain(1000, chain);
    node_id at = model.root;
    for (const int32_t i : chain) {
        at = model.first_child(at);
        CHECK_EQ(tree.at(i).id, at);
    }
    CHECK_EQ(model.first_child(at), no_node);
    const size_t n_levels = chain.size();
    tree.chain(2, chain);
    CHECK_EQ(chain.size(), std::min<size_t>(2, n_levels));
}

// The frontier: all candidates sorted by path, older first among equals.
void compare_frontier(const token_tree & tree, int32_t max_depth, size_t n, token_id leaf) {
    std::vector<int32_t> all;
    for (int32_t i = 0; i < tree.size(); ++i) {
        const auto & nd = tree.at(i);
        if (!nd.expanded() && nd.depth < max_depth && (i == 0 || nd.token != leaf)) {
            all.push_back(i);
        }
    }
    std::stable_sort(all.begin(), all.end(), [&](int32_t a, int32_t b) { return tree.at(a).path > tree.at(b).path; });
    all.resize(std::min(all.size(), n));
    std::vector<int32_t> got(n, -1);
    got.resize(tree.frontier(
        got, [&](int32_t i) { return tree.at(i).depth < max_depth && !(i > 0 && tree.at(i).token == leaf); }));
    CHECK_EQ(got, all);
}

} // namespace

TEST(tree_random_operations) {
    std::vector<node_id> ids;
    int                  n_done = 0;
    for (uint64_t seed = 0; n_done < 100000; ++seed) {
        dice       d(seed);
        token_tree tree;
        model_tree model;
        node_id    last = 1 + d.below(100);
        tree.reset(last, 3);
        model.root        = last;
        model.nodes[last] = {.token = 3};
        std::vector<node_id> known{last};
        for (int k = 0; k < 200; ++k, ++n_done) {
            const uint32_t what = d.below(100);
            if (what < 70) {
                const node_id parent = d.chance(0.1) ? last + 5 : known[d.below(uint32_t(known.size()))];
                const auto    token  = token_id(d.below(5));
                const float   logp   = -float(d.below(6)) * 0.5f; // ties are wanted
                last += 1 + d.below(3);
                const int32_t i = tree.insert(last, parent, token, logp);
                if (!model.nodes.contains(parent)) {
                    CHECK_EQ(i, -1);
                } else if (const node_id there = model.child(parent, token); there != no_node) {
                    CHECK_EQ(i, tree.find(there));
                } else {
                    model.nodes[last] = {.parent = parent, .token = token, .logp = logp};
                    CHECK_EQ(i, tree.size() - 1);
                    known.push_back(last); // stays there after pruning: parents may be stale
                }
            } else if (what < 80) {
                const auto i = int32_t(d.below(uint32_t(tree.size())));
                tree.mark_expanded(i, 0);
                model.nodes[tree.at(i).id].expanded = true;
            } else if (what < 90) {
                compare_frontier(tree, d.between(0, 6), d.below(8), token_id(d.below(6)));
            } else if (what < 94) {
                const auto i = int32_t(d.below(uint32_t(std::min(tree.size(), 1 + int32_t(d.below(20))))));
                model.re_root(tree.at(i).id);
                tree.re_root(i);
            }
            if (k % 10 == 9) {
                compare(tree, model, ids);
            }
        }
    }
}

TEST(tree_unnamed_root_is_not_found) {
    token_tree tree;
    tree.reset(no_node, 4);
    CHECK_EQ(tree.find(no_node), -1);
    CHECK_EQ(tree.insert(7, no_node, 1, 0.0f), -1);
    tree.name_root(5);
    CHECK_EQ(tree.insert(7, 5, 1, 0.0f), 1);
    CHECK_EQ(tree.root().token, 4);
}

TEST(tree_frontier_limits) {
    token_tree tree;
    tree.reset(1, 0);
    int32_t    out[4];
    const auto all = [](int32_t) { return true; };
    CHECK_EQ(tree.frontier(out, [](int32_t) { return false; }), 0u);
    CHECK_EQ(tree.frontier(out, all), 1u);
    CHECK_EQ(tree.frontier(std::span<int32_t>(), all), 0u);
    tree.mark_expanded(0, 0);
    CHECK_EQ(tree.frontier(out, all), 0u);
}
