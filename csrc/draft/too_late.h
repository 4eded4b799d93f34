// How a step of the draft learns that it is too late: a flag that the model looks at while it evaluates.
#pragma once

#include <atomic>
#include <cstdint>

#include "draft_step.h"
#include "model/token_model.h"
#include "wires/wires.h"

namespace duo {

// The target raises the flag of a text when all that the draft evaluates has become useless (wires::step_obsolete,
// raised by verify/token_walk and verify/drafts).
class too_late {
  public:
    too_late(const token_model & model, wires & w) : model_(model), wires_(w) {}

    // The verdict that the flag told of has come.
    void lower(int32_t slot) { wires_.signals[size_t(slot)].step_obsolete.store(false, std::memory_order_relaxed); }

    // What ends the step early. Nodes of one text: a verdict after which none of them is needed. A state that was
    // written in part cannot be mended in mid-text, so then only the end of the text does.
    [[nodiscard]] const std::atomic<bool> & flag_of(const draft_step & step) const {
        const draft_step::part & p = step.parts().front();
        if (step.parts().size() > 1) {
            return never_stop;
        }
        const bool by_verdict = !p.reads() && !wires_.on_host && model_.facts().undo == undo_kind::cells;
        return by_verdict ? wires_.signals[size_t(p.text->slot())].step_obsolete : p.text->req().cancelled;
    }

  private:
    const token_model & model_;
    wires &             wires_;
};

} // namespace duo
