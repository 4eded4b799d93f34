#include "row_batch.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace duo {

row_batch::row_batch(const model_weights & w, const context_shape & shape) : weights_(w) {
    const size_t n = size_t(shape.n_batch) + 1; // and the extra row of strict passes
    token_.resize(n);
    pos_.resize(n * n_pos_parts);
    n_seq_.assign(n, 1);
    seq_.resize(size_t(shape.n_branch));
    std::iota(seq_.begin(), seq_.end(), 0);
    seq_of_.assign(n, seq_.data());
    output_.resize(n);
    state_.resize(n * size_t(w.n_state()));
}

void row_batch::check(std::span<const row> rows) const {
    const std::string & path    = weights_.options.path;
    const size_t        n_batch = token_.size() - 1;
    if (rows.empty() || rows.size() > n_batch) {
        throw error(error_kind::bad_value, "a batch of " + std::to_string(rows.size()) +
                                               " rows does not fit -b/--batch-size " + std::to_string(n_batch));
    }
    for (const row & r : rows) {
        if (r.token < 0 || r.token >= weights_.n_vocab()) {
            throw error(error_kind::bad_value,
                        "token id " + std::to_string(r.token) + " is outside the vocabulary of " + path);
        }
        if (r.branch < 0 || r.n_branches < 1 || r.branch + r.n_branches > int32_t(seq_.size())) {
            throw error("a row belongs to branch " + std::to_string(r.branch) + " or higher ones, but the cache of " +
                        path + " only has " + std::to_string(seq_.size()));
        }
    }
}

void row_batch::set_row(size_t i, const row & r, int32_t pos, bool output) {
    token_[i]  = r.token;
    pos_[i]    = pos;
    n_seq_[i]  = r.n_branches;
    seq_of_[i] = &seq_[size_t(r.branch)];
    output_[i] = output ? 1 : 0;
}

void row_batch::set(std::span<const row> rows, bool even) {
    size_t width = 0;
    for (size_t i = 0, n = 0; i < rows.size(); ++i) {
        n     = i > 0 && rows[i].branch == rows[i - 1].branch ? n + 1 : 1;
        width = std::max(width, n);
    }
    at_.clear();
    n_ = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
        at_.push_back(int32_t(n_));
        set_row(n_++, rows[i], rows[i].pos, rows[i].output);
        const bool last = i + 1 == rows.size() || rows[i + 1].branch != rows[i].branch;
        for (int32_t pos = rows[i].pos + 1; even && last && n_ % width != 0; ++pos) {
            set_row(n_++, rows[i], pos, false);
        }
    }
    n_done_ = 0;
}

// Rows without output leave the last layer before its feed-forward part. If one row remained, it would be computed as a
// single row, so a neighbour in the same pass gets an output too.
void row_batch::keep_two_outputs(size_t n_pass) {
    if (n_pass == 0 && n_ > 1) {
        output_[n_ - 1] = output_[n_ - 2] = output_[n_ - 2] != 0 || output_[n_ - 1] != 0 ? 1 : 0;
        return;
    }
    for (size_t from = 0; n_pass > 0 && from < n_; from += n_pass) {
        const size_t to = std::min(n_, from + n_pass);
        if (std::count(output_.begin() + ptrdiff_t(from), output_.begin() + ptrdiff_t(to), 1) == 1 && to - from > 1) {
            output_[output_[from] == 0 ? from : from + 1] = 1;
        }
    }
}

// llama.cpp computes all rows of a call but copies the first ones only, as many as have an output. So all have one, or
// none.
void row_batch::set_states(std::span<const row> rows) {
    const bool any = std::any_of(rows.begin(), rows.end(), [](const row & r) { return r.output; });
    std::fill_n(output_.begin(), rows.size(), int8_t(any ? 1 : 0));
    const auto n = size_t(weights_.n_state());
    for (size_t i = 0; i < rows.size(); ++i) {
        float * to = state_.data() + i * n;
        if (rows[i].state != nullptr) {
            std::copy_n(rows[i].state, n, to);
        } else {
            std::fill_n(to, n, 0.0f);
        }
    }
}

void row_batch::set_without_tokens(std::span<const row> rows) {
    n_      = rows.size();
    n_done_ = 0;
    for (size_t i = 0; i < n_; ++i) {
        set_row(i, rows[i], rows[i].pos, false);
        // Where positions have several parts (M-RoPE), rows without tokens name all of them, and a text's are equal.
        for (size_t part = 1; part < n_pos_parts; ++part) {
            pos_[part * n_ + i] = part + 1 == n_pos_parts ? 0 : rows[i].pos;
        }
    }
    set_states(rows);
    std::fill_n(output_.begin(), n_, int8_t(0));
}

// All rows have an output, because llama.cpp copies the first ones only, as many as have one. All blocks are equally
// long, because llama.cpp divides the rows so where guesses of a block depend on each other.
void row_batch::set_blocks(std::span<const row> rows) {
    const head_file & head    = *weights_.head;
    const auto        longest = std::max_element(rows.begin(), rows.end(),
                                                 [](const row & a, const row & b) { return a.n_levels < b.n_levels; });
    const int32_t     n_each  = std::clamp(longest->n_levels, 1, weights_.n_levels()) + head.n_known;
    at_.assign(rows.size(), -1);
    n_ = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
        if (!rows[i].output) {
            continue;
        }
        if (n_ + size_t(n_each) > token_.size()) {
            throw error("the blocks of a step do not fit a batch of " + weights_.options.path);
        }
        at_[i] = int32_t(n_) + head.n_known;
        for (int32_t j = 0; j < n_each; ++j, ++n_) {
            set_row(n_, rows[i], rows[i].pos + 1 + j, true);
            token_[n_] = j == 0 ? rows[i].token : head.mask;
        }
    }
}

llama_batch row_batch::get(bool tokens, bool states) {
    return {int32_t(n_),
            tokens ? token_.data() : nullptr,
            states ? state_.data() : nullptr,
            pos_.data(),
            n_seq_.data(),
            seq_of_.data(),
            output_.data()};
}

int32_t row_batch::find(int32_t i_row) const {
    const int32_t i = i_row - i_first_;
    return i >= 0 && size_t(i) < at_.size() ? at_[size_t(i)] : -1;
}

} // namespace duo
