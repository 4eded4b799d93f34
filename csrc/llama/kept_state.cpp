#include "kept_state.h"

#include <algorithm>

#include "../error.h"

namespace duo {

void kept_state::before_pass(bool taken_back) {
    settle();
    n_back_ = 0;
    if (spare_ < 0 || !taken_back || n_spare_ == n_held()) {
        return;
    }
    forget();
    n_spare_ = n_held();
    if (n_spare_ > 0) {
        llama_memory_seq_cp(memory_, own_, spare_, -1, -1);
    }
}

// The state before the pass is not among the snapshots.
void kept_state::after_pass(int32_t n_rows, int32_t n_company) {
    n_back_    = std::min(n_snapshots_, n_rows - 1);
    n_company_ = n_company;
}

bool kept_state::rollback(int32_t pos) {
    const int32_t n = n_held();
    if (pos >= n) {
        return true;
    }
    if (pos <= 0) {
        forget();
        return llama_memory_seq_rm(memory_, own_, -1, -1);
    }
    if (n + n_company_ - pos <= n_back_) {
        n_back_ = n_company_ = 0;
        return llama_memory_seq_rm(memory_, own_, pos, -1);
    }
    return pos == n_spare_ && take_back(pos) == pos;
}

int32_t kept_state::take_back(int32_t pos) {
    const int32_t n = n_held();
    if (pos >= n) {
        return n;
    }
    if (pos > 0 && n + n_company_ - pos <= n_back_ && rollback(pos)) {
        return pos;
    }
    if (n_spare_ > 0 && n_spare_ <= pos) {
        n_company_ = 0;
        llama_memory_seq_rm(memory_, own_, -1, -1);
        llama_memory_seq_cp(memory_, spare_, own_, -1, -1);
        return n_spare_;
    }
    return rollback(0) ? 0 : n;
}

void kept_state::settle() {
    if (n_company_ > 0) {
        const int32_t n = n_held();
        n_back_ = n_company_ = 0;
        if (!llama_memory_seq_rm(memory_, own_, n, -1)) {
            throw error("rows of company could not be taken back from a recurrent state");
        }
    }
}

void kept_state::forget() {
    if (n_spare_ > 0) {
        llama_memory_seq_rm(memory_, spare_, -1, -1);
    }
    n_spare_ = -1;
    n_back_ = n_company_ = 0;
}

} // namespace duo
