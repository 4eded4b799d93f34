// tree_shape against sets of paths and brute force.
#include <algorithm>
#include <set>

#include "check.h"
#include "random.h"
#include "tree/tree_shape.h"

using namespace duo;
using namespace duo_test;

namespace {

using path  = std::vector<int32_t>;
using paths = std::vector<path>;

// All parts of all paths, from the root.
std::set<path> closed(const paths & all) {
    std::set<path> out{{}};
    for (const path & p : all) {
        for (size_t n = 1; n <= p.size(); ++n) {
            out.insert(path(p.begin(), p.begin() + std::ptrdiff_t(n)));
        }
    }
    return out;
}

paths random_paths(dice & d) {
    paths all(size_t(d.between(0, 12)));
    for (path & p : all) {
        p.resize(size_t(d.between(0, 5)));
        for (int32_t & rank : p) {
            rank = d.chance(0.5) ? 0 : d.between(0, 4);
        }
    }
    return all;
}

token_tree random_tree(dice & d, int32_t n) {
    token_tree t;
    t.reset(1, 0);
    for (int32_t i = 0; i < n; ++i) {
        t.insert(node_id(i) + 2, t.at(int32_t(d.below(uint32_t(t.size())))).id, token_id(d.below(6)), -0.1f);
    }
    return t;
}

path ranks_of(const token_tree & t, int32_t i) {
    path p;
    for (; i > 0; i = t.at(i).parent) {
        p.insert(p.begin(), t.at(i).rank);
    }
    return p;
}

} // namespace

TEST(shape_of_nothing) {
    CHECK(tree_shape().empty());
    for (const paths & all : {paths{}, paths{{}}, paths{{}, {}}}) {
        const tree_shape s(all);
        CHECK(s.empty());
        CHECK_EQ(s.n_nodes(), 0);
        CHECK_EQ(s.depth(), 0);
        CHECK_EQ(s.n_children(0), 0);
    }
}

TEST(shape_adds_what_is_missing) {
    const tree_shape s(paths{{0, 2, 1}});
    CHECK_EQ(s.n_nodes(), 3);
    CHECK_EQ(s.depth(), 3);
    CHECK_EQ(s.n_children(0), 1);
    const tree_shape twice(paths{{0}, {1}, {0}, {0, 0}, {1}, {0, 0}});
    CHECK_EQ(twice.n_nodes(), 3);
    CHECK_EQ(twice.n_children(0), 2);
}

TEST(shape_of_medusa) {
    const tree_shape s(paths{{0}, {0, 0}, {1}, {0, 1}, {0, 0, 0}, {1, 0}, {2}});
    CHECK_EQ(s.n_nodes(), 7);
    CHECK_EQ(s.depth(), 3);
    CHECK_EQ(s.n_children(0), 3);
}

TEST(shape_against_brute_force) {
    int n_with = 0, n_without = 0;
    for (uint64_t seed = 0; seed < 3000; ++seed) {
        dice             d(seed);
        const paths      all = random_paths(d);
        const tree_shape s(all);
        const auto       want = closed(all);
        CHECK_EQ(s.n_nodes(), int32_t(want.size()) - 1);
        CHECK_EQ(s.empty(), want.size() == 1);
        size_t depth = 0;
        for (const path & p : want) {
            depth = std::max(depth, p.size());
        }
        CHECK_EQ(s.depth(), int32_t(depth));
        if (s.empty()) {
            continue;
        }
        const token_tree     t = random_tree(d, d.between(0, 60));
        std::vector<int32_t> places{7, 7, 7}; // what was there is overwritten
        s.match(t, places);
        REQUIRE_EQ(int32_t(places.size()), t.size());
        CHECK_EQ(places[0], 0);
        std::set<int32_t> seen;
        for (int32_t i = 0; i < t.size(); ++i) {
            const path    own   = ranks_of(t, i);
            const int32_t place = places[size_t(i)];
            REQUIRE_EQ(place >= 0, want.count(own) == 1, "node " + std::to_string(i));
            (place >= 0 ? n_with : n_without) += 1;
            if (place < 0) {
                continue;
            }
            CHECK(seen.insert(place).second, "a place has one node");
            int32_t n = 0; // ranks below this are asked for
            for (const path & p : want) {
                if (p.size() == own.size() + 1 && std::equal(own.begin(), own.end(), p.begin())) {
                    n = std::max(n, p.back() + 1);
                }
            }
            CHECK_EQ(s.n_children(place), n);
        }
    }
    CHECK(n_with > 3000 && n_without > 3000);
}

TEST(shape_keeps_its_places_when_the_tree_grows) {
    dice             d(9);
    const tree_shape s(paths{{0, 0}, {1, 1}, {0, 1, 2}});
    token_tree       t;
    t.reset(1, 0);
    std::vector<int32_t> before;
    std::vector<int32_t> after;
    for (node_id id = 2; id < 60; ++id) {
        s.match(t, before);
        if (t.insert(id, t.at(int32_t(d.below(uint32_t(t.size())))).id, token_id(d.below(4)), -0.1f) + 1 != t.size()) {
            continue;
        }
        s.match(t, after);
        CHECK(std::equal(before.begin(), before.end(), after.begin()));
    }
}
