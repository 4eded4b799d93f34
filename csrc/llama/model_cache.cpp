#include "model_cache.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "saved_branch.h"

namespace duo {

namespace {
constexpr int32_t n_guess_copy = 16; // and rows that are evaluated again, in a pass over a kept state

// Whether libllama can move keys (build_rope_shift in llama-kv-cache.cpp). It rotates those of all texts in the cache,
// by 0 where nothing moves. YaRN and LongRoPE also scale them; its operators do not take all types and shapes of
// quantised keys; and the keys of an indexer (DeepSeek-V3.2) are rotated otherwise.
bool moves_keys(const model_weights & w) {
    const model_options & opt  = w.options;
    const std::string     of   = w.architecture() + ".rope.scaling.";
    const std::string     kind = opt.rope_scaling.empty() ? w.meta(of + "type") : opt.rope_scaling;
    const auto            has  = [&w](const std::string & key) { return !w.meta(key).empty(); };
    const bool scaled          = (!kind.empty() && kind != "none" && kind != "linear") || opt.yarn_ext_factor > 0.0f ||
                        opt.yarn_attn_factor >= 0.0f || has(of + "attn_factor") || has(of + "yarn_attn_factor") ||
                        has(of + "yarn_ext_factor");
    const bool indexed = has(w.architecture() + ".attention.indexer.head_count");
    return (opt.type_k == "f16" || opt.type_k == "f32") && !scaled && !indexed;
}

// Cells that a sliding window has passed may be gone, and after the shift it would reach back to them. By numbers
// alone, so that all modes agree.
bool leaves_window(const model_weights & w, int32_t n_held, int32_t pos, int32_t n) {
    const int32_t n_window = llama_model_n_swa(w.model.get());
    const bool    chunks   = w.architecture() == "llama4";
    return n_window == 0 || n_held <= n_window || (!chunks && n_held - n >= n_window + pos);
}
} // namespace

model_cache::model_cache(const model_weights & w, model_context & context)
    : weights_(w), context_(context), can_rollback_(!w.keeps_state()) {
    const int32_t n = context.shape().n_branch;
    for (int32_t i = 0; w.keeps_state() && !w.is_draft && i < n; ++i) {
        states_.emplace_back(context.get(), i, context.shape().spare_states ? n + i : -1, w.options.n_marks,
                             w.options.mark_step);
    }
}

void model_cache::end_trial(bool cached) {
    if (cached && !weights_.keeps_state()) {
        can_rollback_ = llama_memory_seq_rm(context_.memory(), 0, 1, -1);
    }
    llama_memory_clear(context_.memory(), false);
    for (kept_state & s : states_) {
        s.forget();
    }
    for (int32_t i = 0;
         !weights_.keeps_state() && !can_rollback_ && !weights_.is_draft && i < context_.shape().n_branch; ++i) {
        states_.emplace_back(context_.get(), i, -1, weights_.options.n_marks,
                             weights_.options.mark_step); // DeepSeek-V4's: no guesses
    }
}

bool model_cache::rollback(int32_t branch, int32_t pos) {
    const llama_memory_t memory = context_.memory();
    if (memory == nullptr) {
        return false;
    }
    if (!can_rollback_ && !weights_.is_draft) {
        return states_[size_t(branch)].rollback(pos);
    }
    if (pos <= 0) {
        return llama_memory_seq_rm(memory, branch, -1, -1);
    }
    return can_rollback_ ? has_window(branch, pos) && llama_memory_seq_rm(memory, branch, pos, -1)
                         : pos >= n_held(branch);
}

int32_t model_cache::take_back(int32_t branch, int32_t pos) {
    if (!can_rollback_ && !weights_.is_draft) {
        return states_[size_t(branch)].take_back(pos);
    }
    return rollback(branch, pos) ? pos : rollback(branch, 0) ? 0 : n_held(branch);
}

bool model_cache::shift(int32_t branch, int32_t pos, int32_t n) {
    const llama_memory_t memory = context_.memory();
    if (!can_rollback_ || !moves_keys(weights_) || !leaves_window(weights_, n_held(branch), pos, n) ||
        !llama_memory_can_shift(memory) || !llama_memory_seq_rm(memory, branch, pos, pos + n)) {
        return false;
    }
    context_.keys_move();
    llama_memory_seq_add(memory, branch, pos + n, -1, -n);
    context_.cells().shifted(context_.text_of(branch), pos, n);
    return true;
}

void model_cache::take_back(std::span<const row> rows) {
    for (auto r = rows.rbegin(); r != rows.rend(); ++r) {
        for (int32_t b = r->branch; b < r->branch + r->n_branches; ++b) {
            rollback(b, r->pos);
        }
    }
}

void model_cache::take_back_padding(const row & last) {
    if (undo() == undo_kind::copy) {
        states_[size_t(last.branch)].take_back(last.pos + 1);
    } else if (!rollback(last.branch, last.pos + 1)) {
        throw error(error_kind::bad_value,
                    "the cache of " + weights_.options.path +
                        " cannot be rolled back; run without --strict and with --cpu-kernels stock");
    }
}

undo_kind model_cache::undo() const {
    return can_rollback_ ? undo_kind::cells : states_.empty() ? undo_kind::copy : states_.front().kind();
}

// Rows that a kept state makes necessary again come before the guesses of the next pass, and a pass that needs padding
// for its bits is not divided.
int32_t model_cache::n_undo() const {
    switch (undo()) {
        case undo_kind::cells:
            break;
        case undo_kind::snapshots:
            return states_.front().n_snapshots();
        case undo_kind::copy:
            return states_.empty() || states_.front().goes_back() ? std::min(n_guess_copy, context_.n_pass() - 1) : 0;
    }
    return std::numeric_limits<int32_t>::max();
}

// Texts of a pass get equally many rows, or libllama would divide it. The padding is taken back by snapshots. A
// copy would take back the whole pass, so without snapshots only a text that is alone has guesses.
int32_t model_cache::n_undo_together(int32_t n_texts) const {
    const int32_t n_pass = std::min(context_.n_pass(), context_.shape().n_batch);
    if (can_rollback_ || n_texts < 2) {
        return n_undo();
    }
    if (context_.shape().one_sequence || n_texts > n_pass) {
        return -1;
    }
    return undo() == undo_kind::snapshots ? std::min(n_undo(), n_pass / n_texts - 1) : 0;
}

void model_cache::mark(int32_t branch) {
    // Cells that a window has passed do not come back.
    if (kept_state * s = state_of(branch); s != nullptr && llama_model_n_swa(weights_.model.get()) == 0) {
        s->mark();
    }
}

int64_t model_cache::mark_bytes() const {
    return std::accumulate(states_.begin(), states_.end(), int64_t(0),
                           [](int64_t n, const kept_state & s) { return n + s.mark_bytes(); });
}

// Whether the cache has all that a token at `pos` may see. Cells that a sliding window has passed may have been given
// to another text, and a saved text comes back without them. A draft head's rows begin anywhere, so it may miss some.
bool model_cache::has_window(int32_t branch, int32_t pos) const {
    const int32_t n_window = llama_model_n_swa(weights_.model.get());
    if (n_window == 0 || weights_.head) {
        return true;
    }
    const llama_pos first = llama_memory_seq_pos_min(context_.memory(), branch);
    return first <= 0 || first <= pos - n_window + 1;
}

// This copies metadata only: all branches are in one buffer (kv_unified), whose cells know their sequences. A state is
// copied as a whole. DeepSeek V4's memory ends the process if only a part of a sequence is to be copied.
void model_cache::fork(int32_t from, int32_t to, int32_t pos) {
    const bool whole = weights_.keeps_state() && pos >= n_held(from);
    if (from != to && pos > 0) {
        llama_memory_seq_cp(context_.memory(), from, to, whole ? -1 : 0, whole ? -1 : pos);
    }
}

int32_t model_cache::n_held(int32_t branch) const {
    const llama_memory_t memory = context_.memory();
    return memory == nullptr ? 0 : llama_memory_seq_pos_max(memory, branch) + 1;
}

std::string model_cache::save(int32_t branch) const {
    return save_branch(weights_, context_, branch, state_of(branch), can_rollback_);
}

int64_t model_cache::saved_bytes(int32_t branch) const {
    return branch_bytes(weights_, context_, branch, state_of(branch), can_rollback_);
}

void model_cache::restore(int32_t branch, std::span<const char> saved) {
    restore_branch(weights_, context_, branch, state_of(branch), saved);
}

void model_cache::before_pass(std::span<const row> rows, bool padded) {
    std::vector<int32_t> n_rows(states_.size());
    std::vector<int32_t> n_outputs(states_.size());
    for (size_t i = 0; !states_.empty() && i < rows.size(); ++i) {
        ++n_rows[size_t(rows[i].branch)];
        n_outputs[size_t(rows[i].branch)] += rows[i].output ? 1 : 0;
    }
    for (size_t i = 0; i < states_.size(); ++i) {
        states_[i].before_pass(n_rows[i] > 0 && (padded || n_outputs[i] > 1));
    }
}

// All texts of a pass have the same number of rows.
void model_cache::after_pass(std::span<const row> rows, size_t n_batch) {
    std::vector<int32_t> n_rows(states_.size());
    for (size_t i = 0; !states_.empty() && i < rows.size(); ++i) {
        ++n_rows[size_t(rows[i].branch)];
    }
    const auto texts = int32_t(n_rows.size()) - int32_t(std::count(n_rows.begin(), n_rows.end(), 0));
    for (size_t i = 0; i < states_.size(); ++i) {
        if (n_rows[i] > 0) {
            const int32_t width = int32_t(n_batch) / texts;
            states_[i].after_pass(width, texts > 1 ? width - n_rows[i] : 0);
        }
    }
}

} // namespace duo
