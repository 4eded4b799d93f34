// The target's part of errands, which are jobs between two texts. The draft does its part at the same time.
#pragma once

#include <vector>

#include "drafts.h"
#include "target_cache.h"
#include "wires/wires.h"

namespace duo {

// Belongs to the verify worker's thread.
class errand_desk {
  public:
    // All must outlive it.
    errand_desk(token_model & model, target_cache & cache, drafts & all_drafts, wires & w)
        : model_(model), cache_(cache), drafts_(all_drafts), wires_(w), last_(cache.slots().data()) {}

    // Does what the request asks for. Returns how it ended; a failure is in the request.
    finish_reason serve(request & req) noexcept;
    // A text has ended there.
    void on_end(verify_slot & s) { last_ = &s; }

  private:
    verify_slot & choose_slot(const request & req);
    void          send(const verify_slot & s, const request & req);
    void          await_draft(const request & req);
    void          carry_out(verify_slot & s, request & req);
    void          score(verify_slot & s, request & req);

    token_model &          model_;
    target_cache &         cache_;
    drafts &               drafts_;
    wires &                wires_;
    verify_slot *          last_; // its text ended last
    std::vector<row>       rows_; // scratch of score()
    std::vector<candidate> best_; // scratch of score()
};

} // namespace duo
