// llama_token_model as a DFlash head (arXiv 2602.06036; llama.cpp: src/models/dflash.cpp). Hidden states of the target
// become cells of its cache without a pass through its layers. Then one pass over a block [token, mask, mask, ...],
// whose rows see each other, gives logits for all positions of the block: a mask's row for the position of the mask,
// or, with most DSpark heads, a row for the position after it.
//
// As in other heads, the cell at position p is made of the state of position p - 1. So the block after the token at
// position p begins at p + 1. RoPE only sees differences, so all numbers are the same as if nothing were shifted.
#include <algorithm>

#include "base/error.h"
#include "model.h"

namespace duo {

int32_t llama_token_model::n_levels() const {
    return is_block() ? head_->n_block - head_->n_known : 1;
}

// At which of the levels of row `i_row` the text ends.
int32_t llama_token_model::level_of(int32_t i_row, std::span<const token_id> text) const {
    if (!is_block() || size_t(i_row) >= at_.size() || at_[size_t(i_row)] < 0) {
        return 0;
    }
    return int32_t(text.size()) + head_->n_known - pos_[size_t(at_[size_t(i_row)])];
}

decode_status llama_token_model::decode_block(std::span<const row> rows, const std::atomic<bool> & stop) {
    check_rows(rows);
    n_rows_ = 0; // until the pass is done
    stop_   = can_rollback_ ? &stop : nullptr;
    if (!evaluate(batch_of_states(rows))) {
        undo(rows);
        return decode_status::stopped;
    }
    const llama_batch blocks = batch_of_blocks(rows);
    if (blocks.n_tokens > 0) {
        stop_ = can_rollback_ ? &stop : nullptr;
        if (!evaluate(blocks)) {
            undo(rows);
            return decode_status::stopped;
        }
    }
    for (const row & r : rows) {
        if (r.output && !llama_memory_seq_rm(llama_get_memory(context_.get()), r.branch, r.pos + 1, -1)) {
            throw error("the cache of " + opt_.path + " did not take back a block");
        }
    }
    n_rows_ = int32_t(rows.size());
    return decode_status::ok;
}

llama_batch llama_token_model::batch_of_states(std::span<const row> rows) {
    const size_t n = rows.size();
    for (size_t i = 0; i < n; ++i) {
        set_row(i, rows[i], rows[i].pos, false);
        // Where positions have several parts (M-RoPE), rows without tokens name all of them, and a text's are equal.
        for (size_t part = 1; part < n_pos_parts; ++part) {
            pos_[part * n + i] = part + 1 == n_pos_parts ? 0 : rows[i].pos;
        }
    }
    set_states(rows);
    std::fill_n(output_.begin(), n, int8_t(0));
    return {int32_t(n), nullptr, state_of_.data(), pos_.data(), n_seq_.data(), seq_of_.data(), output_.data()};
}

// All rows have an output, because llama.cpp copies the first ones only, as many as have one. All blocks are equally
// long, because llama.cpp divides the rows so where guesses of a block depend on each other.
llama_batch llama_token_model::batch_of_blocks(std::span<const row> rows) {
    const auto    longest = std::max_element(rows.begin(), rows.end(),
                                             [](const row & a, const row & b) { return a.n_levels < b.n_levels; });
    const int32_t n_each  = std::clamp(longest->n_levels, 1, n_levels()) + head_->n_known;
    size_t        n       = 0;
    at_.assign(rows.size(), -1);
    for (size_t i = 0; i < rows.size(); ++i) {
        if (!rows[i].output) {
            continue;
        }
        if (n + size_t(n_each) > token_.size()) {
            throw error("the blocks of a step do not fit a batch of " + opt_.path);
        }
        at_[i] = int32_t(n) + head_->n_known;
        for (int32_t j = 0; j < n_each; ++j, ++n) {
            set_row(n, rows[i], rows[i].pos + 1 + j, true);
            token_[n] = j == 0 ? rows[i].token : head_->mask;
        }
    }
    return {int32_t(n), token_.data(), nullptr, pos_.data(), n_seq_.data(), seq_of_.data(), output_.data()};
}

} // namespace duo
