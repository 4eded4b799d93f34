#include "kept_state.h"

#include <algorithm>

namespace duo {

void kept_state::before_pass(bool taken_back) {
    n_back_ = 0;
    if (spare_ < 0 || !taken_back || n_spare_ == n_held()) {
        return;
    }
    forget();
    n_spare_ = n_held();
    if (n_spare_ > 0) {
        llama_memory_seq_cp(memory_, 0, spare_, -1, -1);
    }
}

// The state before the pass is not among the snapshots.
void kept_state::after_pass(int32_t n_rows) {
    n_back_ = std::min(n_snapshots_, n_rows - 1);
}

bool kept_state::rollback(int32_t pos) {
    const int32_t n = n_held();
    if (pos >= n) {
        return true;
    }
    if (pos <= 0) {
        forget();
        n_back_ = 0;
        return llama_memory_seq_rm(memory_, 0, -1, -1);
    }
    if (n - pos <= n_back_) {
        n_back_ = 0;
        return llama_memory_seq_rm(memory_, 0, pos, -1);
    }
    return pos == n_spare_ && take_back(pos) == pos;
}

int32_t kept_state::take_back(int32_t pos) {
    if (pos >= n_held()) {
        return n_held();
    }
    if (pos > 0 && n_held() - pos <= n_back_ && rollback(pos)) {
        return pos;
    }
    if (n_spare_ > 0 && n_spare_ <= pos) {
        llama_memory_seq_rm(memory_, 0, -1, -1);
        llama_memory_seq_cp(memory_, spare_, 0, -1, -1);
        return n_spare_;
    }
    return rollback(0) ? 0 : n_held();
}

void kept_state::forget() {
    if (n_spare_ > 0) {
        llama_memory_seq_rm(memory_, spare_, -1, -1);
    }
    n_spare_ = -1;
}

} // namespace duo
