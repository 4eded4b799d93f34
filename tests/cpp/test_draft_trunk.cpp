// draft_trunk and branch_pool under random growth, re-rooting and failure; the model checks what each branch really
// holds.
#include "draft/draft_text.h"
#include "draft/draft_trunk.h"
#include "draft_grower.h"

using namespace duo;
using namespace duo_test;

namespace {

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

TEST(a_picture_stays_or_goes_as_a_whole) {
    grower g(3, {.n_batch = 64});
    g.text = {1, 2, 3, 4, 5, 6};
    CHECK(g.cache.clear());
    g.tree.reset(++g.n_ids, 6);
    while (!g.tree.root().expanded()) {
        g.step();
    }
    const std::vector<token_id> other{1, 2, 3, 9, 5, 6};
    const auto                  seen = std::make_shared<scripted_picture>(2);
    g.cache.begin(g.text, other, n_window_all, picture_spans({{.first = 2, .n_rows = 2, .content = seen}}));
    CHECK_EQ(g.cache.n_text(), 2, "its first row is the same");
    CHECK_EQ(g.model.cached(g.cache.branch()).size(), 2u);
}

// Cells that a sliding window has passed may be gone: then the cache does not go back to the beginning that is shared.
TEST(a_text_that_cannot_go_back_is_read_anew) {
    scripted_model          model({.can_rollback = false});
    branch_pool             pool(model);
    draft_trunk             cache(pool);
    const std::atomic<bool> no{false};
    const auto              read = [&](const std::vector<token_id> & text) {
        for (int32_t i = cache.n_rows(); i < int32_t(text.size()); ++i) {
            const row r{.token = text[size_t(i)], .pos = i, .branch = cache.branch()};
            CHECK(model.decode(std::vector<row>{r}, no) == decode_status::ok);
            cache.grow(1);
        }
    };
    const std::vector<token_id> first{1, 2, 3, 4, 5, 6};
    const std::vector<token_id> second{1, 2, 3, 9, 5};
    cache.begin({}, first);
    read(first);
    cache.begin(first, second);
    CHECK_EQ(cache.n_rows(), 0);
    CHECK(model.cached(cache.branch()).empty());
    read(second);
    CHECK_EQ(model.cached(cache.branch()), second);
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
    cached_text &        cache = text.cache();
    node_counter         ids;
    std::vector<int32_t> nodes;
    request              req;
    req.prompt = {5, 6};
    CHECK(text.begin(req, ids).has_value());
    text.take_orders({.n_ahead = 4, .n_branch = 4});
    cache.on_text_rows(cache.n_missing());
    cache.tree().mark_expanded(0, cache.trunk().branch());
    cache.tree().insert(ids.next(), cache.tree().root().id, 7, -0.1f);
    text.frontier().choose(nodes, 9);
    REQUIRE_EQ(nodes.size(), 1u);
    cache.tree().mark_expanded(nodes[0], cache.trunk().take(cache.tree(), nodes[0], cache.pos_of(nodes[0])));
    CHECK_EQ(cache.n_cached(), 3);
    text.end();
    CHECK(cache.clear());
    CHECK_EQ(cache.n_cached(), 0);
}

// One text's branches are emptied, which fails at the nth. What another text takes then is its own.
TEST(a_branch_that_could_not_be_emptied_belongs_to_one_text) {
    const std::atomic<bool> no{false};
    for (const bool keeps_base : {false, true}) {
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
                keeps_base ? first.keep_as_base(1) : first.keep_text();
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
