// What happens to a text after its pass: it grows as far as the target agrees with the tree. Then its draft, the
// planner and its reader are told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "drafts.h"
#include "pass_planner.h"
#include "target_cache.h"
#include "target_pass.h"
#include "token_chooser.h"
#include "wires/wires.h"

namespace duo {

// Belongs to the verify worker's thread.
class token_walk {
  public:
    // All must outlive it.
    token_walk(token_model & model, target_cache & cache, target_pass & pass, pass_planner & plans, drafts & all_drafts,
               wires & w)
        : model_(model), cache_(cache), pass_(pass), plans_(plans), drafts_(all_drafts), wires_(w), chooser_(model) {}

    // The text grows. now: how draft and target worked together.
    void finish(verify_slot & s, stance now);
    // False: a guess or another text has spoiled the row of a token that counts, so the text must be evaluated again
    // alone. What the walk had accepted before is committed, and n_good of the slot is set.
    bool finish_unless_spoiled(verify_slot & s, stance now);

    // Wakes the draft and the reader once for all texts of a pass.
    void wake_all();
    // Wakes the reader if it has not been told of the last tokens.
    void wake_reader();

  private:
    void walk(verify_slot & s, stance now);
    void commit(verify_slot & s);
    void emit(verify_slot & s, bool from_draft, int32_t i_row, size_t n_before);
    void look_up(const request & req, int32_t i_row, std::span<const token_id> text, chunk_msg & chunk);
    void trim(verify_slot & s, size_t n_before);
    void trace(verify_slot & s, const verify_stats & before, stance now, int32_t depth);

    token_model &            model_;
    target_cache &           cache_;
    target_pass &            pass_;
    pass_planner &           plans_;
    drafts &                 drafts_;
    wires &                  wires_;
    token_chooser            chooser_;
    int64_t                  t_woken_     = 0;     // the reader
    bool                     late_chunks_ = false; // it has not been told of the last ones
    std::vector<verdict_msg> verdicts_;            // scratch
    std::vector<candidate>   best_;                // scratch: alternatives for log-probabilities
    std::vector<candidate>   chances_;             // scratch: what the filters leave
};

} // namespace duo
