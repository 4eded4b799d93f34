// The rows of a pass as llama_decode wants them, and where each row of the caller is among them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <llama.h>

#include "context_shape.h"
#include "model/token_model.h"

namespace duo {

// Padding rows are rows that nobody asked for. The weights must outlive the batch.
class row_batch {
  public:
    row_batch(const model_weights & w, const context_shape & shape);

    // Throws duo::error for rows that the model cannot evaluate.
    void check(std::span<const row> rows) const;

    // The next rows are the caller's from i_first on.
    void begin(int32_t i_first) { i_first_ = i_first; }
    // Their pass is done.
    void done(size_t n_rows) { n_done_ = int32_t(n_rows); }

    // even: each text gets as many rows as the longest, by padding rows.
    void set(std::span<const row> rows, bool even);
    // A padding row, after the text's last one.
    void add_padding(const row & last) { set_row(n_++, last, last.pos + 1, false); }
    // No row is the only one of its pass with an output. n_pass: rows of a pass; 0: only the last two rows have
    // outputs.
    void keep_two_outputs(size_t n_pass);
    // The states of the rows, for a draft head.
    void set_states(std::span<const row> rows);

    // For a head that guesses in blocks: the rows as states without tokens; then the blocks after them.
    void set_without_tokens(std::span<const row> rows);
    void set_blocks(std::span<const row> rows);

    [[nodiscard]] size_t      size() const { return n_; }
    [[nodiscard]] llama_batch get(bool tokens, bool states);

    // Where the caller's row is in the batch; < 0: not there.
    [[nodiscard]] int32_t find(int32_t i_row) const;
    [[nodiscard]] bool    is_done(int32_t i_row) const { return i_row >= 0 && i_row < i_first_ + n_done_; }
    [[nodiscard]] int32_t i_first() const { return i_first_; }

    // Of a row of the batch.
    [[nodiscard]] int32_t pos(int32_t i) const { return pos_[size_t(i)]; }
    [[nodiscard]] int32_t branch(int32_t i) const { return seq_of_[size_t(i)][0]; }
    [[nodiscard]] bool    has_output(int32_t i) const { return output_[size_t(i)] != 0; }

  private:
    void set_row(size_t i, const row & r, int32_t pos, bool output);

    static constexpr size_t n_pos_parts = 4; // at most, of a position

    const model_weights &       weights_;
    size_t                      n_ = 0;
    std::vector<llama_token>    token_;
    std::vector<llama_pos>      pos_;
    std::vector<int32_t>        n_seq_;
    std::vector<llama_seq_id>   seq_; // 0, 1, 2, ...; a row's branches are a slice of it
    std::vector<llama_seq_id *> seq_of_;
    std::vector<int8_t>         output_;
    std::vector<float>          state_; // a draft head's
    std::vector<int32_t>        at_;    // by row of the caller
    int32_t                     i_first_ = 0;
    int32_t                     n_done_  = 0;
};

} // namespace duo
