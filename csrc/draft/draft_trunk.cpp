#include "draft_trunk.h"

#include <algorithm>

#include "base/error.h"
#include "base/same.h"

namespace duo {

draft_trunk::draft_trunk(branch_pool & pool, bool of_head) : pool_(pool), of_head_(of_head), trunk_(pool.acquire()) {
    if (trunk_ < 0) {
        throw error(error_kind::busy, "the draft model's cache has no free branch for another text");
    }
    branches_.reserve(pool.n_branch()); // a branch that is taken must get into the list
    branches_.push_back(trunk_);
}

void draft_trunk::begin(std::span<const token_id> old_text, std::span<const token_id> text, int32_t n_window,
                        const picture_spans & pictures) {
    const size_t n_old = std::min(old_text.size(), size_t(n_text()));
    // The last token is evaluated even if it is cached: its candidates are wanted.
    const int32_t       n     = pictures.whole(n_same(text.first(text.size() - 1), old_text.first(n_old)));
    const bool          whole = of_head_ || pool_.keeps_state();
    const draft_reading plan  = draft_reading::of(window_, n, int32_t(text.size()), whole ? n_window_all : n_window);
    window_                   = plan.window;
    n_rows_                   = plan.n_kept;
    for (const int32_t b : branches_) {
        pool_.cut_or_empty(b, b == trunk_ ? n_rows_ : 0);
    }
    n_rows_ = std::min(n_rows_, pool_.length(trunk_));
}

void draft_trunk::re_root(const token_tree & tree, int32_t i, int32_t pos) {
    if (of_head_) {
        return;
    }
    while (i > 0 && !tree.at(i).expanded()) {
        i = tree.at(i).parent;
        --pos;
    }
    if (tree.at(i).expanded()) {
        trunk_  = tree.at(i).branch;
        n_rows_ = window_.row_of(pos) + 1;
    }
}

void draft_trunk::prune(const token_tree & tree) {
    const int32_t last = *std::max_element(branches_.begin(), branches_.end());
    in_use_.assign(size_t(last) + 1, false);
    for (int32_t i = 0; i < tree.size(); ++i) {
        if (tree.at(i).expanded()) {
            in_use_[size_t(tree.at(i).branch)] = true;
        }
    }
    for (size_t j = branches_.size(); j-- > 0;) {
        const int32_t b = branches_[j];
        if (in_use_[size_t(b)]) {
            continue;
        }
        if (b == trunk_) { // a head's has nothing to cut
            pool_.cut(b, n_rows_);
        } else {
            drop(j);
        }
    }
}

// The list must never name a free branch, which another text may take: each one leaves it at once, or stays if the
// model cannot empty it.
void draft_trunk::drop(size_t j) {
    pool_.release(branches_[j]);
    branches_.erase(branches_.begin() + std::ptrdiff_t(j));
}

void draft_trunk::grow(int32_t n) {
    n_rows_ += n;
    pool_.set_length(trunk_, n_rows_);
}

void draft_trunk::restart(int32_t n) {
    pool_.cut(trunk_, 0);
    pool_.set_length(trunk_, n);
    window_ = {};
    n_rows_ = n;
}

bool draft_trunk::follows_tip(const token_tree & tree, int32_t i, int32_t row) const {
    const int32_t up = tree.at(tree.at(i).parent).branch;
    return !pool_.keeps_state() && pool_.length(up) == row && !(of_head_ && up == trunk_);
}

bool draft_trunk::can_take(const token_tree & tree, int32_t i, int32_t pos) const {
    return follows_tip(tree, i, window_.row_of(pos)) || pool_.any_free();
}

int32_t draft_trunk::take(const token_tree & tree, int32_t i, int32_t pos) {
    const int32_t row = window_.row_of(pos);
    const int32_t up  = tree.at(tree.at(i).parent).branch;
    int32_t       b   = up;
    if (!follows_tip(tree, i, row)) {
        b = pool_.acquire();
        if (b < 0) {
            return -1;
        }
        branches_.push_back(b);
        pool_.fork(up, b, row);
    }
    pool_.set_length(b, row + 1);
    return b;
}

void draft_trunk::give_back(int32_t branch, int32_t row) {
    pool_.set_length(branch, row); // the row itself never came
    // A branch that was forked for it holds nothing of its own; it is freed with the next prune().
}

void draft_trunk::keep_text() {
    for (size_t j = branches_.size(); j-- > 0;) {
        if (branches_[j] != trunk_) {
            drop(j);
        }
    }
    pool_.cut(trunk_, n_rows_);
    n_rows_ = std::min(n_rows_, pool_.length(trunk_));
}

void draft_trunk::keep_as_base(int32_t n) {
    n_rows_ = n < 0 ? n_rows_ : std::min(n_rows_, window_.n_rows(n));
    keep_text();
    const int32_t first = pool_.acquire();
    if (first < 0) {
        return;
    }
    branches_.push_back(first);
    if (first < trunk_) {
        pool_.fork(trunk_, first, n_rows_);
        trunk_ = first;
    }
    drop(trunk_ == first ? 0 : 1);
}

bool draft_trunk::clear() {
    bool done = true;
    for (const int32_t b : branches_) {
        done = pool_.forget(b) && done;
    }
    trunk_  = pool_.acquire();
    window_ = {};
    n_rows_ = 0;
    branches_.assign(1, trunk_);
    return done;
}

} // namespace duo
