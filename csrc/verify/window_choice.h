// How much of a prompt the draft reads: reading costs time, and a draft that knows more saves more.
#pragma once

#include <cstdint>

#include "plan/planner.h"
#include "plan/text_lengths.h"
#include "text/draft_window.h"
#include "verify_slot.h"

namespace duo {

// The last tokens of a prompt, which a draft reads.
struct chosen_window {
    int32_t n     = n_window_auto;
    double  share = 1.0; // of what a draft saves that reads all
};

// Belongs to the verify worker's thread.
class window_choice {
  public:
    // The planner, which knows times and gains, must outlive it.
    explicit window_choice(const planner & plans) : planner_(plans) {}

    // The target alone has read n rows of a prompt in that time.
    void on_prompt(int32_t n_rows, int64_t us);
    // See text_lengths.
    void on_end(int32_t n_tokens, bool cut_off) { lengths_.on_end(n_tokens, cut_off); }
    // Tokens of the text that are probably still to come.
    [[nodiscard]] int32_t n_to_come(const verify_slot & s) const;
    // The last tokens that the draft is to read: more of them are worth their time while they save more than they
    // take. If none does, the most that can be tried. n_left: see n_to_come().
    [[nodiscard]] chosen_window choose(const verify_slot & s, int32_t n_left, int64_t elapsed_us) const;
    // How long the draft will read if it is to read the last n_window tokens: as long as the target would, less what
    // its smaller size and its cache save.
    [[nodiscard]] int64_t reading_us(const verify_slot & s, int32_t n_window) const;
    // The same for what it has missed since it last read.
    [[nodiscard]] int64_t missed_us(const verify_slot & s) const;

  private:
    [[nodiscard]] int64_t rows_us(int32_t n_rows) const; // of the draft

    const planner & planner_;
    text_lengths    lengths_;
    double          row_us_ = 0.0; // time of a prompt row, as last measured; 0: unknown
};

} // namespace duo
