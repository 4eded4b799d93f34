// Evaluates the target's pass. If it spoils a row, or fails, its texts are evaluated again one by one.
#pragma once

#include <cstdint>
#include <vector>

#include "drafts.h"
#include "pass_clock.h"
#include "pass_planner.h"
#include "pass_texts.h"
#include "target_cache.h"
#include "target_pass.h"
#include "text_desk.h"
#include "token_walk.h"
#include "wires/wires.h"

namespace duo {

// Belongs to the verify worker's thread.
class pass_evaluator {
  public:
    // All must outlive it.
    pass_evaluator(wires & w, target_cache & cache, target_pass & pass, pass_planner & plans, drafts & all_drafts,
                   const pass_texts & in_pass, token_walk & walk, text_desk & texts);

    // A pass without texts begins.
    void begin();
    // Evaluates it. False: nothing was evaluated, because the only text was cancelled. Throws what the model throws.
    bool evaluate(int32_t n_threads);
    // A row of the text was spoiled, so its rows are evaluated alone.
    void repair(verify_slot & s);
    // A failure of one text is its own: if the pass had several, each is evaluated alone, and those end that fail
    // again.
    void on_failure(failure why) noexcept;

    // What the time is spent on.
    void is_for(stance now) { clock_.is_for(now); }
    void start_clock() { clock_.start(); }
    void stop_clock() { clock_.stop(); }
    void book() { clock_.book(passes_); }
    // From any thread.
    [[nodiscard]] pass_counts passes() const { return passes_.read(); }

  private:
    void on_evaluated(verify_slot & s);
    void work_again(verify_slot & s, size_t n_good);

    wires &                    wires_;
    target_cache &             cache_;
    target_pass &              pass_;
    pass_planner &             plans_;
    drafts &                   drafts_;
    const pass_texts &         pass_texts_;
    token_walk &               walk_;
    text_desk &                texts_;
    std::vector<verify_slot *> again_; // scratch: texts of a pass that failed
    pass_board                 passes_;
    pass_clock                 clock_;
};

} // namespace duo
