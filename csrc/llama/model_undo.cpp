// llama_token_model: what its cache takes back, shares and keeps.
#include <algorithm>
#include <numeric>

#include "model.h"

namespace duo {

namespace {
constexpr int32_t n_guess_copy = 16; // and rows that are evaluated again, in a pass over a kept state
} // namespace

bool llama_token_model::rollback(int32_t branch, int32_t pos) {
    const llama_memory_t memory = llama_get_memory(context_.get());
    if (memory == nullptr) {
        return false;
    }
    if (!can_rollback_ && !is_draft_) {
        return states_[size_t(branch)].rollback(pos);
    }
    if (pos <= 0) {
        return llama_memory_seq_rm(memory, branch, -1, -1);
    }
    return can_rollback_ ? has_window(branch, pos) && llama_memory_seq_rm(memory, branch, pos, -1)
                         : pos >= n_held(branch);
}

int32_t llama_token_model::take_back(int32_t branch, int32_t pos) {
    return can_rollback_ || is_draft_ ? token_model::take_back(branch, pos) : states_[size_t(branch)].take_back(pos);
}

undo_kind llama_token_model::undo() const {
    return can_rollback_ ? undo_kind::cells : states_.empty() ? undo_kind::copy : states_.front().kind();
}

// Rows that a kept state makes necessary again come before the guesses of the next pass, and a pass that needs company
// for its bits is not divided.
int32_t llama_token_model::n_undo() const {
    const auto n_pass = int32_t(llama_n_ubatch(context_.get()));
    switch (undo()) {
        case undo_kind::cells:
            break;
        case undo_kind::snapshots:
            return states_.front().n_snapshots();
        case undo_kind::copy:
            return states_.empty() || states_.front().goes_back() ? std::min(n_guess_copy, n_pass - 1) : 0;
    }
    return token_model::n_undo();
}

// Texts of a pass get equally many rows, or libllama would divide it. Those of company are taken back by snapshots. A
// copy would take back the whole pass, so without snapshots only a text that is alone has guesses.
int32_t llama_token_model::n_undo_together(int32_t n_texts) const {
    const auto n_pass = int32_t(std::min(llama_n_ubatch(context_.get()), uint32_t(n_batch_)));
    if (can_rollback_ || n_texts < 2) {
        return n_undo();
    }
    if (one_sequence_ || n_texts > n_pass) {
        return -1;
    }
    return undo() == undo_kind::snapshots ? std::min(n_undo(), n_pass / n_texts - 1) : 0;
}

void llama_token_model::mark(int32_t branch) {
    if (!states_.empty() && llama_model_n_swa(model_.get()) == 0) { // cells that a window has passed do not come back
        states_[size_t(branch)].mark();
    }
}

int64_t llama_token_model::mark_bytes() const {
    return std::accumulate(states_.begin(), states_.end(), int64_t(0),
                           [](int64_t n, const kept_state & s) { return n + s.mark_bytes(); });
}

// Whether the cache has all that a token at `pos` may see. Cells that a sliding window has passed may have been given
// to another text, and a saved text comes back without them. A draft head's rows begin anywhere, so it may miss some.
bool llama_token_model::has_window(int32_t branch, int32_t pos) const {
    const int32_t n_window = llama_model_n_swa(model_.get());
    if (n_window == 0 || head_) {
        return true;
    }
    const llama_pos first = llama_memory_seq_pos_min(llama_get_memory(context_.get()), branch);
    return first <= 0 || first <= pos - n_window + 1;
}

// This copies metadata only: all branches are in one buffer (kv_unified), whose cells know their sequences. A state is
// copied as a whole. DeepSeek V4's memory ends the process if only a part of a sequence is to be copied.
void llama_token_model::fork(int32_t from, int32_t to, int32_t pos) {
    const bool whole = keeps_state() && pos >= n_held(from);
    if (from != to && pos > 0) {
        llama_memory_seq_cp(llama_get_memory(context_.get()), from, to, whole ? -1 : 0, whole ? -1 : pos);
    }
}

int32_t llama_token_model::n_held(int32_t branch) const {
    const llama_memory_t memory = llama_get_memory(context_.get());
    return memory == nullptr ? 0 : llama_memory_seq_pos_max(memory, branch) + 1;
}

void llama_token_model::undo(std::span<const row> rows) {
    for (auto r = rows.rbegin(); r != rows.rend(); ++r) {
        for (int32_t b = r->branch; b < r->branch + r->n_branches; ++b) {
            rollback(b, r->pos);
        }
    }
}

} // namespace duo
