// N-grams in a pass_tree, alone and beside what the draft guesses.
#include <algorithm>

#include "pass_trees.h"

using namespace duo_test;

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
        const auto of_draft = [&](int32_t i) { // if the text goes through its parent
            const int32_t up = before[size_t(i)].parent;
            return before[size_t(i)].chance / (up < 0 ? 1.0 : before[size_t(up)].chance);
        };
        const int32_t end = tree.add_ngram(from, proposal, p, least);
        check_nodes(tree);
        // Nodes that were there are there still. Only those on the n-gram's way are surer of themselves than before.
        auto way = from < 0 ? std::vector<token_id>{} : path_of(tree, from);
        way.insert(way.end(), tokens.begin(), tokens.end());
        for (int32_t i = 0; i < n; ++i) {
            const auto & a  = before[size_t(i)];
            const auto & b  = tree.nodes()[size_t(i)];
            const auto   on = path_of(tree, i);
            CHECK(a.token == b.token && a.parent == b.parent && a.i_node == b.i_node && b.chance >= a.chance);
            const double now = b.chance / (b.parent < 0 ? 1.0 : tree.nodes()[size_t(b.parent)].chance);
            CHECK(std::abs(now - of_draft(i)) < 1e-9 ||
                  (now > of_draft(i) && on.size() <= way.size() && std::equal(on.begin(), on.end(), way.begin())));
        }
        // New ones are the n-gram's own, each with the chance of its way there. Beside other guesses it has less.
        const auto drafted = [&](int32_t at) {
            double sum = 0.0;
            for (int32_t i = 0; i < n; ++i) {
                sum += before[size_t(i)].parent == at ? of_draft(i) : 0.0;
            }
            return std::min(0.999, sum);
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
            const bool   both   = next >= 0 && next < n;
            const double beside = both ? 0.0 : drafted(at);
            c *= both ? std::max(own, of_draft(next)) : own * (1.0 - beside) / (1.0 - own * beside);
            if (next < 0) {
                CHECK(c < least, "what is left out is improbable");
                break;
            }
            const auto & nd = tree.nodes()[size_t(next)];
            CHECK_EQ(nd.i_node >= 0, next < n);
            CHECK(std::abs(nd.chance - c) < 1e-9);
            at = next;
        }
        CHECK_EQ(end, at);
        const auto after = tree.nodes();
        CHECK_EQ(tree.add_ngram(from, proposal, p, least), end, "once more changes nothing");
        CHECK(std::ranges::equal(tree.nodes(), after, [](const auto & a, const auto & b) {
            return a.token == b.token && a.parent == b.parent && std::abs(a.chance - b.chance) < 1e-9;
        }));
    }
}

// Both guess A. Then the draft says B, and the n-gram C: the surer the draft is of B, the less chance has C.
TEST(an_ngram_beside_a_surer_draft) {
    const guess_record p;
    token_tree         t;
    t.reset(1, 0);
    t.insert(2, 1, 10, float(std::log(0.3)));
    t.insert(3, 2, 11, float(std::log(0.95)));
    const double a = p.chance(t.at(1).logp);
    const double b = p.chance(t.at(2).logp);
    const double c = p.ngram_chance(8, 1);
    REQUIRE(p.ngram_chance(8, 0) > a && b > c);
    pass_tree tree;
    tree.begin(t, p, 0.0);
    tree.add_ngram(-1, {.tokens = {10, 12}, .n_match = 8}, p, 0.0);
    const auto & nodes = tree.nodes();
    REQUIRE(nodes.size() == 3);
    CHECK_EQ(nodes[0].chance, p.ngram_chance(8, 0));
    CHECK(std::abs(nodes[1].chance - nodes[0].chance * b) < 1e-9);
    CHECK(std::abs(nodes[2].chance - nodes[0].chance * c * (1.0 - b) / (1.0 - c * b)) < 1e-9);
    CHECK_EQ(tree.best_path(), (std::vector<int32_t>{0, 1}));
}
