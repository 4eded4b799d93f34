#include "branch_pool.h"

#include <algorithm>

#include "base/error.h"

namespace duo {

int32_t branch_pool::acquire() {
    const auto it = std::find_if(branches_.begin(), branches_.end(), [](const state & s) { return !s.taken; });
    if (it == branches_.end()) {
        return -1;
    }
    it->taken = true;
    return int32_t(it - branches_.begin());
}

bool branch_pool::any_free() const {
    return std::any_of(branches_.begin(), branches_.end(), [](const state & s) { return !s.taken; });
}

int32_t branch_pool::n_taken() const {
    return int32_t(std::count_if(branches_.begin(), branches_.end(), [](const state & s) { return s.taken; }));
}

void branch_pool::release(int32_t branch) {
    cut(branch, 0);
    branches_[size_t(branch)].taken = false;
}

void branch_pool::fork(int32_t from, int32_t to, int32_t n) {
    model_.fork(from, to, n);
    set_length(to, n);
}

void branch_pool::cut(int32_t branch, int32_t n) {
    if (length(branch) > n) {
        n = keeps_state() ? 0 : n;
        if (!model_.rollback(branch, n)) {
            throw error(error_kind::bad_value, "the draft model's cache cannot be rolled back");
        }
        set_length(branch, n);
    }
}

void branch_pool::cut_or_empty(int32_t branch, int32_t n) {
    if (length(branch) > n) {
        set_length(branch, model_.take_back(branch, keeps_state() ? 0 : n));
        cut(branch, n); // throws if it holds more than that
    }
}

bool branch_pool::forget(int32_t branch) noexcept {
    branches_[size_t(branch)] = {};
    try {
        return model_.rollback(branch, 0);
    } catch (...) {
        return false;
    }
}

} // namespace duo
