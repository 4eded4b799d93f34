// Chooses the nodes of all texts that the draft's next step evaluates: those most likely to be needed.
#pragma once

#include "draft_step.h"
#include "draft_texts.h"
#include "node_sender.h"

namespace duo {

// Each text proposes nodes (draft_frontier); those stay that fit into the cache and the batch, and pay.
class node_choice {
  public:
    node_choice(const token_model & model, draft_texts & texts, node_sender & sender)
        : model_(model), texts_(texts), sender_(sender) {}

    // Fills in the step's parts. Texts that have nothing to do, or no room, pause. No parts: no text has a step.
    void choose(draft_step & step);

  private:
    [[nodiscard]] const draft_text * reader_of_picture() const;
    void                             keep_what_pays(draft_step & step) const;

    const token_model & model_;
    draft_texts &       texts_;
    node_sender &       sender_;
    draft_step::part    next_;                // scratch
    bool                was_picture_ = false; // the last step was for one
};

} // namespace duo
