// A draft's trunk and tree that grow at random, over a model that checks what each branch holds.
#pragma once

#include "draft/draft_trunk.h"
#include "scripted_model.h"
#include "tree/token_tree.h"

namespace duo_test {

using namespace duo;

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
        const int32_t        n_free = model.facts().n_cells - cache.n_rows() - n_expanded();
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

} // namespace duo_test
