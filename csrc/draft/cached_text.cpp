#include "cached_text.h"

#include <algorithm>

namespace duo {

namespace {
// Rows of a draft head that are made without the target's states, where these were left out. Such rows know their
// tokens, which is worth most of what the states are (benchmarks/history/heads.md); those of a head of blocks do not.
constexpr int32_t n_bridge       = 64;
constexpr int32_t n_bridge_block = 4;
} // namespace

cached_text::cached_text(const token_model & model, branch_pool & pool)
    : model_(model), trunk_(pool, model.facts().n_inputs > 0) {
    if (model.facts().n_inputs > 0) {
        head_.emplace();
    }
}

void cached_text::begin(std::span<const token_id> prompt, const picture_spans & pictures, int32_t n_window,
                        node_id id) {
    if (head_) {
        head_->begin(tokens_, prompt);
    }
    pictures_ = pictures;
    trunk_.begin(tokens_, prompt, n_window, pictures_);
    if (head_ && trunk_.n_text() == 0) {
        trunk_.restart(1);
    }
    tokens_.assign(prompt.begin(), prompt.end() - 1);
    readable_ = std::all_of(tokens_.begin(), tokens_.end(),
                            [this](token_id t) { return t < model_.facts().n_vocab || is_picture(t); });
    tree_.reset(id, no_token);
}

void cached_text::accept(int32_t i) {
    trunk_.re_root(tree_, i, pos_of(i));
    tree_.path_to(i, tokens_);
    tree_.re_root(i);
}

bool cached_text::commit(token_id token, node_counter & ids) {
    const int32_t i = tree_.child(0, token);
    trunk_.re_root(tree_, std::max(i, 0), pos_of(std::max(i, 0)));
    tokens_.push_back(token);
    readable_ = readable_ && token < model_.facts().n_vocab;
    i >= 0 ? tree_.re_root(i) : tree_.reset(ids.next(), token);
    prune();
    return i < 0;
}

// What was guessed below the root stays. If a head's states there are too old, it is evaluated again, from the new
// root.
void cached_text::on_text_rows(int32_t n) {
    trunk_.grow(n);
    if (!head_) {
        return;
    }
    head_->drop_before(trunk_.n_text());
    if (n_missing() > 0) {
        return;
    }
    if (in_blocks() || head_->is_stale(tree_)) {
        tree_.forget_rows();
    }
    tree_.mark_expanded(0, trunk_.branch());
    prune();
}

void cached_text::close_gap() {
    if (!head_ || n_missing() <= 0) {
        return;
    }
    const int32_t from = head_->first_ready(trunk_.n_text());
    if (from > trunk_.n_text() && from < int32_t(tokens_.size())) {
        if (from - trunk_.n_text() > (in_blocks() ? n_bridge_block : n_bridge)) {
            trunk_.restart(in_blocks() ? from : from - n_bridge); // what was before is too far away
        }
        head_->bridge(trunk_.n_text());
    }
}

void cached_text::drop_tree() {
    tree_.reset(no_node, no_token);
    trunk_.keep_text();
}

bool cached_text::clear() {
    tree_.forget_rows();
    return trunk_.clear();
}

void cached_text::adopt(std::span<const token_id> tokens) {
    if (head_) {
        head_->clear();
    }
    tokens_.assign(tokens.begin(), tokens.end());
    pictures_ = {};
    trunk_.grow(int32_t(tokens.size()));
}

std::vector<token_id> cached_text::cached_tokens() const {
    std::vector<token_id> all;
    for (int32_t row = 0; row < trunk_.n_rows() && trunk_.window().pos_of(row) < int32_t(tokens_.size()); ++row) {
        all.push_back(tokens_[size_t(trunk_.window().pos_of(row))]);
    }
    return all;
}

int32_t cached_text::n_readable() const {
    return head_ ? std::min(n_missing(), head_->n_ready(trunk_.n_text())) : n_missing();
}

int32_t cached_text::n_expanded() const {
    int32_t n = 0;
    for (int32_t i = 1; i < tree_.size(); ++i) {
        n += tree_.at(i).expanded() ? 1 : 0;
    }
    return n;
}

void cached_text::prune() {
    trunk_.prune(tree_);
    if (head_) {
        head_->prune(tree_);
    }
}

} // namespace duo
