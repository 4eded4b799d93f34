// One pass of the target: the rows of all texts that take part, and how long they took.
#pragma once

#include <cstdint>
#include <vector>

#include "model/token_model.h"
#include "verify_slot.h"
#include "wires/wires.h"

namespace duo {

// Belongs to the verify worker's thread.
class target_pass {
  public:
    // Model and wires must outlive it. n_slots: texts at most.
    target_pass(token_model & model, wires & w, size_t n_slots) : model_(model), wires_(w) { slots_.reserve(n_slots); }

    // Texts with rows in the pass.
    [[nodiscard]] std::vector<verify_slot *> &       slots() { return slots_; }
    [[nodiscard]] const std::vector<verify_slot *> & slots() const { return slots_; }
    [[nodiscard]] size_t                             n_rows() const { return rows_.size(); }
    // Rows that the texts need before any drafted one, as their n_read says.
    [[nodiscard]] size_t n_base_rows() const;

    // No text and no row; or this text, and no row.
    void clear();
    void begin(verify_slot & s);
    void drop_rows() { rows_.clear(); }
    // Adds a text's rows: the next n_read rows of its prompt; or, if that is 0, what is missing of the text, the root,
    // and the chosen nodes.
    void set_rows(verify_slot & s, size_t n_read);

    // Evaluates the rows. A tree's side branches are dropped after it, because the walk needs only the candidates.
    // n_threads 0: all that the model was given. `stopped`: the only text was cancelled, and nothing was evaluated.
    decode_status evaluate(int32_t n_threads);

    [[nodiscard]] int64_t t0() const { return t0_; }
    [[nodiscard]] int64_t t1() const { return t1_; }
    [[nodiscard]] int64_t us() const { return t1_ - t0_; }
    // Time that making and dropping branches took. It is outside the pass but part of its cost.
    [[nodiscard]] int64_t branches_us() const { return branches_us_; }
    // It has neither a part of a prompt nor a text's first verification, or its first one after a shift: their times
    // tell nothing of other passes.
    [[nodiscard]] bool is_typical() const;

  private:
    bool          fork_branches();
    void          drop_branches();
    decode_status timed_decode();

    token_model &              model_;
    wires &                    wires_;
    std::vector<verify_slot *> slots_;
    std::vector<row>           rows_;
    int64_t                    t0_          = 0;
    int64_t                    t1_          = 0;
    int64_t                    branches_us_ = 0;
};

} // namespace duo
