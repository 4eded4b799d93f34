// Which texts share the next pass, and which rows of their prompts they read in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/token_model.h"
#include "scale_turns.h"
#include "target_pass.h"
#include "verify_slot.h"

namespace duo {

// Belongs to the verify worker's thread.
class pass_texts {
  public:
    // The model must outlive it. n_slots: texts at most.
    pass_texts(const token_model & model, size_t n_slots) : model_(model), n_slots_(n_slots) {}

    // Rows that a text reads alone before the pass that verifies. 0: the next pass verifies.
    [[nodiscard]] size_t n_to_read(const verify_slot & s) const;
    // Of these next rows those that one pass can have: a whole picture, or tokens.
    [[nodiscard]] static size_t one_kind(const verify_slot & s, size_t n_rows);

    // Puts those of the texts into the pass that read or write in it, and sets their n_read. A long prompt is read in
    // pieces where other texts are written or may come.
    void fill(target_pass & pass, const std::vector<verify_slot *> & texts);
    // The pass was evaluated.
    void measure(const target_pass & pass);

  private:
    bool read_picture(target_pass & pass, const std::vector<verify_slot *> & texts, bool others);
    void share(const std::vector<verify_slot *> & texts, bool writing);
    void keep_one_width(std::vector<verify_slot *> & slots);

    const token_model &        model_;
    const size_t               n_slots_;
    std::vector<verify_slot *> long_;                    // scratch: texts with long prompts
    double                     piece_row_us_ = 0.0;      // least time of a row in a piece; 0: unknown
    size_t                     n_piece_      = SIZE_MAX; // rows of the next piece at most
    uint64_t                   n_turns_      = 0;        // see verify_slot::n_turn
    bool                       was_picture_  = false;    // the last pass read one
    scale_turns                scales_;
};

} // namespace duo
