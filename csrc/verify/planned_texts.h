// The texts that the planner knows of: one that is written alone, or several that share each pass.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "client_drafts.h"
#include "plan/planner.h"
#include "verify_slot.h"
#include "wires/wires.h"

namespace duo {

// Belongs to the verify worker's thread.
class planned_texts {
  public:
    // All must outlive it.
    planned_texts(const token_model & model, const wires & w, planner & p, client_drafts & clients)
        : model_(model), wires_(w), planner_(p), clients_(clients) {}

    // This text is written alone from now on, unless that is so already.
    void begin_alone(verify_slot & s);
    // These texts share each pass from now on.
    void begin_together(const std::vector<verify_slot *> & texts);

    [[nodiscard]] bool is_alone(const verify_slot & s) const { return planned_slot_ == &s; }
    [[nodiscard]] bool is_alone() const { return planned_slot_ != nullptr; }
    [[nodiscard]] bool any_draft() const { return any_draft_; }
    // Guesses that the target can take back in a pass over them.
    [[nodiscard]] int32_t n_undo() const { return n_undo(std::max(1, together_.n_texts)); }

    void end_alone() { planned_slot_ = nullptr; }
    // A text has ended: whoever is left is told to the planner anew. A text that is parked while a pass is planned
    // leaves the others with the terms that they have.
    void on_end() {
        planned_slot_ = nullptr;
        together_     = {};
    }

  private:
    // What several texts have in common, as far as the planner is concerned.
    struct terms {
        int32_t    n_texts = 0; // 0: there are not several
        bool       drafts  = false;
        bool       sync    = false;
        bool       always  = false;
        guess_kind kind    = guess_kind::noise;
        uint64_t   client  = 0; // whose draft it goes by

        bool operator==(const terms &) const = default;
    };

    [[nodiscard]] int32_t n_undo(int32_t n_texts) const;

    const token_model & model_;
    const wires &       wires_;
    planner &           planner_;
    client_drafts &     clients_;
    const verify_slot * planned_slot_ = nullptr; // of the text that is written alone
    node_id             last_planned_ = no_node; // id of the last text that was written alone
    terms               together_{};
    bool                any_draft_ = false;
};

} // namespace duo
