// The branches of the draft model's KV cache: which are taken, and how many tokens each one holds.
//
// A branch is a llama.cpp sequence. Branches share the cells of their common beginning (llama_memory_seq_cp with one
// buffer for all sequences: no data move).
#pragma once

#include <cstdint>
#include <vector>

#include "model/token_model.h"

namespace duo {

// One for each model. The texts take their branches from it.
class branch_pool {
  public:
    explicit branch_pool(token_model & model) : model_(model), branches_(size_t(model.facts().n_branch)) {}

    // The first free branch, which is empty; it belongs to the caller from then on. -1: none is free.
    [[nodiscard]] int32_t acquire();
    [[nodiscard]] bool    any_free() const;
    [[nodiscard]] int32_t n_taken() const;
    [[nodiscard]] size_t  n_branch() const { return branches_.size(); }

    // Empties the branch and makes it free. Throws duo::error if the model cannot.
    void release(int32_t branch);

    // Makes the empty branch `to` share the first n tokens of `from`.
    void fork(int32_t from, int32_t to, int32_t n);
    // Keeps the first n tokens of the branch, if it holds more; a recurrent state goes back to none. Throws duo::error
    // if the model cannot.
    void cut(int32_t branch, int32_t n);
    // The same, but the branch is emptied if the model cannot go back so far: cells that a sliding window has passed
    // may be gone.
    void cut_or_empty(int32_t branch, int32_t n);

    // A branch with a recurrent state is forked as it is, so that a node keeps its branch for itself.
    [[nodiscard]] bool keeps_state() const { return model_.facts().undo != undo_kind::cells; }

    [[nodiscard]] int32_t length(int32_t branch) const { return branches_[size_t(branch)].length; }
    // Only the count: the model's cache has changed, or will.
    void set_length(int32_t branch, int32_t n) { branches_[size_t(branch)].length = n; }

    // Empties the branch whatever it is thought to hold: after a failure it may hold rows that were never counted.
    // It is free afterwards. False: the model could not empty it.
    bool forget(int32_t branch) noexcept;

  private:
    struct state {
        bool    taken  = false;
        int32_t length = 0; // tokens
    };

    token_model &      model_;
    std::vector<state> branches_;
};

} // namespace duo
