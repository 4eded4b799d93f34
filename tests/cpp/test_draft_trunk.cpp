// draft_trunk and branch_pool under random growth, re-rooting and failure; the model checks what each branch really
// holds.
#include "core/draft_text.h"
#include "core/draft_trunk.h"
#include "scripted_model.h"

using namespace duo;
using namespace duo_test;

namespace {

// What draft_worker does with a text's trunk, one thing at a time and at random.
struct grower {
    grower(uint64_t seed, const behaviour & b) : d(seed), has(b), model(b), pool(model), cache(pool) { begin(); }

    int32_t pos_of(int32_t i) const { return int32_t(text.size()) - 1 + tree.at(i).depth; }

    int32_t n_expanded() const {
        int32_t n = 0;
        for (int32_t i = 1; i < tree.size(); ++i) {
            n += tree.at(i).expanded() ? 1 : 0;
        }
        return n;
    }

    token_id any_token() { return token_id(d.below(uint32_t(has.lang.n_vocab))); }

    void begin() {
        std::vector<token_id> prompt(text.begin(), text.begin() + d.below(uint32_t(text.size()) + 1));
        for (int32_t n = d.between(1, d.chance(0.3) ? 40 : 6); n > 0; --n) {
            prompt.push_back(any_token());
        }
        prompt.resize(std::min(prompt.size(), size_t(has.n_ctx) - 2));
        cache.begin(text, prompt, n_window);
        n_skips += cache.window().n_left_out > 0 ? 1 : 0;
        text.assign(prompt.begin(), prompt.end() - 1);
        tree.reset(++n_ids, no_token);
        commit(prompt.back());
    }

    void commit(token_id token) {
        const int32_t i = tree.child(0, token);
        cache.re_root(tree, std::max(i, 0), pos_of(std::max(i, 0)));
        text.push_back(token);
        i >= 0 ? tree.re_root(i) : tree.reset(++n_ids, token);
        cache.prune(tree);
        n_hits += i >= 0 ? 1 : 0;
        check_branches(true);
    }

    // A verdict: some node, and a token that may or may not be its child.
    void verdict() {
        const auto i = int32_t(d.below(uint32_t(tree.size())));
        if (pos_of(i) + 2 >= has.n_ctx) {
            begin();
            return;
        }
        const int32_t first = tree.first_child(i);
        const auto    token = first >= 0 && d.chance(0.6) ? tree.at(first).token : any_token();
        n_beside += tree.at(i).branch != tree.root().branch && tree.at(i).expanded() ? 1 : 0;
        cache.re_root(tree, i, pos_of(i));
        tree.path_to(i, text);
        tree.re_root(i);
        commit(token);
    }

    void step() {
        const std::atomic<bool> stop{d.chance(0.1)};
        std::vector<row>        rows;
        if (!tree.root().expanded()) {
            const int32_t n = std::min(int32_t(view(text).size()) - cache.n_rows(), has.n_batch);
            for (int32_t row = cache.n_rows(); row < cache.n_rows() + n; ++row) {
                const bool last = row + 1 == int32_t(view(text).size());
                rows.push_back(
                    {.token = view(text)[size_t(row)], .pos = row, .branch = cache.branch(), .output = last});
            }
            if (model.decode(rows, stop) == decode_status::ok) {
                cache.grow(n);
                if (cache.n_rows() == int32_t(view(text).size())) {
                    CHECK_EQ(cache.n_text(), int32_t(text.size()));
                    tree.mark_expanded(0, cache.branch());
                    grow(0, n - 1);
                }
            }
            return;
        }
        const int32_t        n_free = model.n_cells() - cache.n_rows() - n_expanded();
        std::vector<int32_t> batch;
        for (int32_t i = 1; i < tree.size(); ++i) {
            if (!tree.at(i).expanded() && pos_of(i) < has.n_ctx && d.chance(0.4) &&
                int32_t(batch.size()) < std::min(n_free, has.n_batch)) {
                batch.push_back(i);
            }
        }
        std::vector<int32_t> taken;
        for (const int32_t i : batch) {
            const int32_t b = cache.take(tree, i, pos_of(i));
            if (b >= 0) {
                const int32_t row = cache.window().row_of(pos_of(i));
                rows.push_back({.token = tree.at(i).token, .pos = row, .branch = b, .output = true});
                taken.push_back(i);
            } else {
                ++n_refused;
                CHECK_EQ(n_empty(), 0, "a branch is refused only if none is free");
            }
        }
        if (rows.empty()) {
            return;
        }
        if (model.decode(rows, stop) == decode_status::stopped) {
            for (const row & r : rows) {
                cache.give_back(r.branch, r.pos);
            }
            ++n_stopped;
            return;
        }
        for (size_t j = 0; j < rows.size(); ++j) {
            tree.mark_expanded(taken[j], rows[j].branch);
        }
        for (size_t j = 0; j < rows.size(); ++j) {
            grow(taken[j], int32_t(j));
        }
        check_branches(false);
    }

    // Children of node i; asking for them makes the model compare what it has cached with the path.
    void grow(int32_t i, int32_t i_row) {
        std::vector<token_id>  path = text;
        std::vector<candidate> out(size_t(d.between(1, 3)));
        tree.path_to(i, path);
        const node_id up = tree.at(i).id;
        for (int32_t n = model.candidates(i_row, {.temp = 0.0f}, path, out); n > 0; --n) {
            tree.insert(++n_ids, up, out[size_t(n) - 1].token, -0.1f);
        }
    }

    int32_t n_empty() const {
        int32_t n = 0;
        for (int32_t b = 0; b < has.n_branch; ++b) {
            n += model.cached(b).empty() ? 1 : 0;
        }
        return n;
    }

    // Each node's branch begins with its path, the last node of a branch ends it, and no branch is kept for nothing.
    void check_branches(bool pruned) {
        std::vector<int32_t>  last(size_t(has.n_branch), -1);
        std::vector<token_id> path;
        for (int32_t i = 0; i < tree.size(); ++i) {
            if (tree.at(i).expanded()) {
                const int32_t b    = tree.at(i).branch;
                const auto    have = model.cached(b);
                path               = text;
                tree.path_to(i, path);
                path = view(path);
                CHECK(have.size() >= path.size() && std::equal(path.begin(), path.end(), have.begin()),
                      "the branch of a node holds its path");
                last[size_t(b)] = std::max(last[size_t(b)], cache.window().row_of(pos_of(i)));
            }
        }
        for (int32_t b = 0; b < has.n_branch; ++b) {
            const auto n = int32_t(model.cached(b).size());
            if (last[size_t(b)] >= 0) {
                CHECK_EQ(n, last[size_t(b)] + 1, "and no more than that");
            } else if (b == cache.branch()) {
                CHECK_EQ(n, cache.n_rows());
            } else {
                CHECK(!pruned || n == 0, "a branch without a node is free");
            }
        }
        const auto trunk = model.cached(cache.branch());
        CHECK(int32_t(trunk.size()) >= cache.n_rows() &&
                  std::equal(trunk.begin(), trunk.begin() + cache.n_rows(), view(text).begin()),
              "the trunk holds the text");
    }

    // What of a text is read.
    std::vector<token_id> view(std::vector<token_id> all) const {
        const auto first = all.begin() + std::min(cache.window().n_first, int32_t(all.size()));
        all.erase(first, first + std::min<std::ptrdiff_t>(cache.window().n_left_out, all.end() - first));
        return all;
    }

    dice                  d;
    behaviour             has;
    scripted_model        model;
    branch_pool           pool;
    draft_trunk           cache;
    token_tree            tree;
    std::vector<token_id> text;
    node_id               n_ids     = 0;
    int32_t               n_window  = n_window_all;
    int                   n_refused = 0, n_stopped = 0, n_hits = 0, n_beside = 0, n_skips = 0;
};

// Its nth rollback from now fails once.
struct slippery_model : scripted_model {
    using scripted_model::scripted_model;
    bool rollback(int32_t branch, int32_t pos) override {
        return n_to_fail-- != 0 && scripted_model::rollback(branch, pos);
    }
    int n_to_fail = -1;
};

} // namespace

TEST(branches_hold_the_paths) {
    int n_refused = 0, n_stopped = 0, n_hits = 0, n_beside = 0, n_skips = 0;
    for (uint64_t seed = 0; seed < 300; ++seed) {
        dice   d(seed + 1000);
        grower g(seed, {.lang     = {.seed = seed, .n_vocab = 12},
                        .n_ctx    = d.between(8, 40),
                        .n_batch  = d.between(1, 12),
                        .n_branch = d.between(1, 16),
                        .n_spare  = d.chance(0.3) ? d.between(0, 4) : 64});
        for (int k = 0; k < 1000; ++k) {
            g.n_window = g.d.chance(0.5) ? g.d.between(1, 10) : n_window_all;
            g.d.chance(0.7) ? g.step() : g.d.chance(0.95) ? g.verdict() : g.begin();
            if (check::n_failed.load() > 10) {
                return;
            }
        }
        n_refused += g.n_refused;
        n_stopped += g.n_stopped;
        n_hits += g.n_hits;
        n_beside += g.n_beside;
        n_skips += g.n_skips;
        CHECK(g.cache.clear());
        CHECK_EQ(g.n_empty(), g.has.n_branch, "nothing is left");
        CHECK_EQ(g.cache.n_text(), 0);
        g.tree.reset(++g.n_ids, g.text.back());
        g.step(); // and it can be used again
    }
    for (const int n : {n_refused, n_stopped, n_hits, n_beside}) {
        CHECK(n > 1000, std::to_string(n));
    }
    CHECK(n_skips > 100, std::to_string(n_skips)); // few texts are long enough
}

TEST(a_cache_that_cannot_roll_back) {
    grower g(1, {.can_rollback = false});
    bool   threw = false;
    try {
        for (int k = 0; k < 1000; ++k) {
            g.d.chance(0.7) ? g.step() : g.verdict();
        }
    } catch (const std::runtime_error &) {
        threw = true;
    }
    CHECK(threw, "it is told");
    CHECK(g.cache.clear(), "all of it can be forgotten");
    CHECK_EQ(g.n_empty(), g.has.n_branch);
}

TEST(a_text_that_continues_is_kept) {
    grower g(3, {.n_batch = 64});
    g.text = {1, 2, 3, 4, 5, 6};
    CHECK(g.cache.clear());
    g.tree.reset(++g.n_ids, 6);
    while (!g.tree.root().expanded()) {
        g.step();
    }
    CHECK_EQ(g.cache.n_text(), 6);
    const std::vector<token_id> other{1, 2, 3, 9, 5};
    g.cache.begin(g.text, other);
    CHECK_EQ(g.cache.n_text(), 3);
    CHECK_EQ(g.model.cached(g.cache.branch()).size(), 3u);
    const std::vector<token_id> shorter{1, 2};
    g.cache.begin(other, shorter);
    CHECK_EQ(g.cache.n_text(), 1, "the last token is evaluated again");
}

TEST(a_step_that_was_stopped_leaves_its_branch) {
    scripted_model          model({.lang = {.n_vocab = 40}});
    branch_pool             pool(model);
    draft_trunk             cache(pool);
    token_tree              tree;
    const std::atomic<bool> no{false};
    const std::atomic<bool> yes{true};
    cache.begin({}, std::vector<token_id>{5});
    CHECK(model.decode(std::vector<row>{{.token = 5, .pos = 0, .branch = cache.branch()}}, no) == decode_status::ok);
    cache.grow(1);
    tree.reset(1, 5);
    tree.mark_expanded(0, cache.branch());
    tree.insert(2, 1, 6, -0.1f);
    for (int i = 0; i < 3; ++i) { // it follows the tip each time: no other branch is taken
        const int32_t b = cache.take(tree, 1, 1);
        CHECK_EQ(b, cache.branch());
        CHECK(model.decode(std::vector<row>{{.token = 6, .pos = 1, .branch = b}}, yes) == decode_status::stopped);
        cache.give_back(b, 1);
    }
}

// Else the room that a failed text left is counted once for each text that looks for room.
TEST(a_text_that_was_forgotten_has_no_rows) {
    scripted_model       model({.lang = {.n_vocab = 40}});
    branch_pool          pool(model);
    draft_text           text(model, pool, 0);
    node_counter         ids;
    node_msg             named;
    std::vector<int32_t> nodes;
    request              req;
    req.prompt = {5, 6};
    CHECK(text.begin(req, ids, named));
    text.take_orders({.n_ahead = 4, .n_branch = 4});
    text.trunk().grow(text.n_missing());
    text.mark_expanded(0, text.trunk().branch());
    text.insert(ids.next(), text.tree().root().id, 7, -0.1f);
    text.choose(nodes, 9);
    REQUIRE_EQ(nodes.size(), 1u);
    text.mark_expanded(nodes[0], text.trunk().take(text.tree(), nodes[0], text.pos_of(nodes[0])));
    CHECK_EQ(text.n_cached(), 3);
    text.end();
    CHECK(text.clear_cache());
    CHECK_EQ(text.n_cached(), 0);
}

// One text's branches are emptied, which fails at the nth. What another text takes then is its own.
TEST(a_branch_that_could_not_be_emptied_belongs_to_one_text) {
    const std::atomic<bool> no{false};
    for (const bool settles : {false, true}) {
        int n_failed = 0;
        for (int n = 0; n < 5; ++n) {
            slippery_model model({.lang = {.n_vocab = 40}, .n_branch = 6});
            branch_pool    pool(model);
            draft_trunk    first(pool);
            draft_trunk    second(pool);
            token_tree     tree;
            node_id        id = 1;
            first.begin({}, std::vector<token_id>{5});
            model.decode(std::vector<row>{{.token = 5, .pos = 0, .branch = first.branch()}}, no);
            first.grow(1);
            tree.reset(id, 5);
            tree.mark_expanded(0, first.branch());
            std::vector<row> rows;
            for (token_id t = 10; t < 14; ++t) {
                const int32_t i = tree.insert(++id, 1, t, -0.1f);
                const int32_t b = first.take(tree, i, 1);
                REQUIRE(b >= 0);
                rows.push_back({.token = t, .pos = 1, .branch = b});
                model.decode(std::span(&rows.back(), 1), no);
                tree.mark_expanded(i, b);
            }
            model.n_to_fail = n;
            try {
                settles ? first.settle(1) : first.keep_text();
            } catch (const duo::error &) {
                ++n_failed;
            }
            model.n_to_fail = -1;

            second.begin({}, std::vector<token_id>{7});
            model.decode(std::vector<row>{{.token = 7, .pos = 0, .branch = second.branch()}}, no);
            second.grow(1);
            token_tree other;
            other.reset(id = 100, 7);
            other.mark_expanded(0, second.branch());
            std::vector<int32_t> its;
            for (token_id t = 20; pool.any_free() && t < 26; ++t) {
                const int32_t i = other.insert(++id, 100, t, -0.1f);
                its.push_back(second.take(other, i, 1));
                const std::vector<row> more{{.token = t, .pos = 1, .branch = its.back()}};
                model.decode(more, no);
                other.mark_expanded(i, its.back());
            }
            CHECK(first.clear());
            for (const int32_t b : its) {
                CHECK_EQ(model.cached(b).size(), 2u, "fails at " + std::to_string(n));
            }
            CHECK_EQ(pool.n_taken(), 1 + int32_t(its.size()) + (its.front() == second.branch() ? 0 : 1));
        }
        CHECK(n_failed > 2);
    }
}
