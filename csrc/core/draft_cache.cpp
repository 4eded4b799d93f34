#include "draft_cache.h"

#include <algorithm>
#include <stdexcept>

#include "same.h"

namespace duo {

void draft_cache::cut(int32_t branch, int32_t pos) {
    if (length_[size_t(branch)] > pos) {
        if (!model_.rollback(branch, pos)) {
            throw std::runtime_error("the draft model's cache cannot be rolled back");
        }
        length_[size_t(branch)] = pos;
    }
}

void draft_cache::begin(std::span<const token_id> old_text, std::span<const token_id> text) {
    const size_t n_old = std::min(old_text.size(), size_t(n_text_));
    // The last token is evaluated even if it is cached: its candidates are wanted.
    n_text_ = n_same(text.first(text.size() - 1), old_text.first(n_old));
    for (int32_t b = 0; b < int32_t(length_.size()); ++b) {
        cut(b, b == trunk_ ? n_text_ : 0);
    }
}

void draft_cache::re_root(const token_tree & tree, int32_t i, int32_t pos) {
    while (i > 0 && !tree.at(i).expanded()) {
        i = tree.at(i).parent;
        --pos;
    }
    if (tree.at(i).expanded()) {
        trunk_  = tree.at(i).branch;
        n_text_ = pos + 1;
    }
}

void draft_cache::prune(const token_tree & tree) {
    used_.assign(length_.size(), false);
    for (int32_t i = 0; i < tree.size(); ++i) {
        if (tree.at(i).expanded()) {
            used_[size_t(tree.at(i).branch)] = true;
        }
    }
    for (int32_t b = 0; b < int32_t(length_.size()); ++b) {
        if (!used_[size_t(b)]) {
            cut(b, b == trunk_ ? n_text_ : 0);
        }
    }
}

void draft_cache::grow_text(int32_t n) {
    n_text_ += n;
    length_[size_t(trunk_)] = n_text_;
}

bool draft_cache::can_take(const token_tree & tree, int32_t i, int32_t pos) const {
    return length_[size_t(tree.at(tree.at(i).parent).branch)] == pos ||
           std::find(length_.begin(), length_.end(), 0) != length_.end();
}

int32_t draft_cache::take(const token_tree & tree, int32_t i, int32_t pos) {
    const int32_t up = tree.at(tree.at(i).parent).branch;
    int32_t       b  = up;
    if (length_[size_t(up)] != pos) {
        b = int32_t(std::find(length_.begin(), length_.end(), 0) - length_.begin());
        if (b == int32_t(length_.size())) {
            return -1;
        }
        model_.fork(up, b, pos);
    }
    length_[size_t(b)] = pos + 1;
    return b;
}

void draft_cache::give_back(int32_t branch, int32_t pos) {
    length_[size_t(branch)] = pos; // the row itself never came
    // A branch that was forked for it holds nothing of its own; it is freed with the next prune().
}

bool draft_cache::clear() {
    bool done = true;
    for (int32_t b = 0; b < int32_t(length_.size()); ++b) {
        done = model_.rollback(b, 0) && done; // after a failure a branch may hold what was never counted
    }
    std::fill(length_.begin(), length_.end(), 0);
    trunk_ = n_text_ = 0;
    return done;
}

} // namespace duo
