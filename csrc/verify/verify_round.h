// A round of the target: it plans a pass over one text or several, has it evaluated, and walks as far as the target
// agrees.
#pragma once

#include <cstdint>
#include <vector>

#include "drafts.h"
#include "pass_evaluator.h"
#include "pass_planner.h"
#include "pass_texts.h"
#include "target_cache.h"
#include "target_pass.h"
#include "text_desk.h"
#include "token_walk.h"
#include "wires/wires.h"

namespace duo {

// Belongs to the verify worker's thread.
class verify_round {
  public:
    // All must outlive it.
    verify_round(token_model & model, wires & w, target_cache & cache, target_pass & pass, pass_planner & plans,
                 drafts & all_drafts, pass_texts & in_pass, text_desk & texts, token_walk & walk,
                 pass_evaluator & evaluator);

    // One pass over the texts that are written, of which there is one at least. Throws what the model throws.
    void make();
    // There is no text.
    void idle();

  private:
    static constexpr int32_t n_waits_most = 16 * n_draft_cap; // so that useless messages cannot hold up a pass for ever

    struct result { // of a pass
        int32_t n_tokens = 0;
        double  expected = 0.0; // tokens, by the planner
        bool    drafting = false;
        bool    usual    = true; // without prompts and repairs
    };

    bool                  begin(const std::vector<verify_slot *> & texts);
    bool                  plan();
    bool                  wait_for_drafts();
    void                  foresee();
    void                  take_nodes();
    [[nodiscard]] int32_t n_room() const;
    [[nodiscard]] bool    any_cancelled() const;
    result                finish(const std::vector<verify_slot *> & slots, stance now);
    void                  tell_planner(const result & r, bool drafts_begin);

    token_model &              model_;
    wires &                    wires_;
    target_cache &             cache_;
    target_pass &              pass_;
    pass_planner &             plans_;
    drafts &                   drafts_;
    pass_texts &               pass_texts_;
    text_desk &                texts_;
    token_walk &               walk_;
    pass_evaluator &           evaluator_;
    std::vector<verify_slot *> waiting_;        // scratch: texts that wait for their drafts
    std::vector<token_id>      foreseen_;       // tokens that the next pass may have; the model was told
    std::vector<token_id>      tokens_;         // scratch: as they are known now
    int64_t                    t_together_ = 0; // when the last pass over several texts ended; 0: it was over one text
};

} // namespace duo
