// What a context has cached: what it takes back, shares, keeps and saves.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kept_state.h"
#include "model/token_model.h"
#include "model_context.h"

namespace duo {

// For the functions of token_model with these names. The weights and the context must outlive it.
class model_cache {
  public:
    model_cache(const model_weights & w, model_context & context);

    bool    rollback(int32_t branch, int32_t pos);
    int32_t take_back(int32_t branch, int32_t pos);
    bool    shift(int32_t branch, int32_t pos, int32_t n);
    // None of the rows is cached any more, after a pass that was stopped.
    void take_back(std::span<const row> rows);
    // Nor is the padding row after this one. Throws duo::error if that is not possible.
    void take_back_padding(const row & last);

    [[nodiscard]] undo_kind undo() const;
    [[nodiscard]] int32_t   n_undo() const;
    [[nodiscard]] int32_t   n_undo_together(int32_t n_texts) const;
    // Whether it goes back to any position: not with recurrent or hybrid memory.
    [[nodiscard]] bool can_rollback() const { return can_rollback_; }
    // Whether the branches' states are kept (kept_state).
    [[nodiscard]] bool keeps_states() const { return !states_.empty(); }

    void                  mark(int32_t branch);
    [[nodiscard]] int64_t mark_bytes() const;
    void                  fork(int32_t from, int32_t to, int32_t pos);
    [[nodiscard]] int32_t n_held(int32_t branch) const;

    [[nodiscard]] std::string save(int32_t branch) const;
    [[nodiscard]] int64_t     saved_bytes(int32_t branch) const;
    void                      restore(int32_t branch, std::span<const char> saved);

    // Around each pass over these rows. padded: one more row follows them. n_batch: rows with the padding.
    void before_pass(std::span<const row> rows, bool padded);
    void after_pass(std::span<const row> rows, size_t n_batch);

    // Ends the trial of a new context, which has cached positions 0 and 1 of branch 0: finds out whether the second one
    // can be taken back (like common_context_can_seq_rm), and empties the cache. Without a trial it is assumed.
    void end_trial(bool cached);

  private:
    [[nodiscard]] bool         has_window(int32_t branch, int32_t pos) const;
    [[nodiscard]] kept_state * state_of(int32_t branch) const {
        return states_.empty() ? nullptr : &states_[size_t(branch)];
    }

    const model_weights &           weights_;
    model_context &                 context_;
    bool                            can_rollback_;
    mutable std::vector<kept_state> states_; // of recurrent or hybrid memory, by branch; none of a draft's
};

} // namespace duo
