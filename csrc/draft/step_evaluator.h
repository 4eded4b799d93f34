// Evaluates the nodes of a step of the draft in one batch.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "draft_step.h"
#include "model/token_model.h"

namespace duo {

// Belongs to the draft worker's thread.
class step_evaluator {
  public:
    explicit step_evaluator(token_model & model) : model_(model) {}

    // Makes the rows of the step's parts and evaluates them. stop: ends it early. False: no node was evaluated.
    bool evaluate(draft_step & step, const std::atomic<bool> & stop);
    // Evaluates as many of the text's own rows as a batch has. Nothing is asked of them. Returns how many.
    int32_t read(draft_text & text);

  private:
    void set_rows(draft_step & step) const;
    void add_rows_of_text(draft_step & step, draft_step::part & p, size_t n_most) const;
    void add_rows_of_nodes(draft_step & step, draft_step::part & p) const;
    void set_states(draft_step & step);
    void mark_evaluated(draft_step & step);
    void keep_states(const draft_step::part & p);

    token_model &      model_;
    std::vector<float> inputs_; // a head's, of the step: rows of the target's states, and what it makes of them
    std::vector<float> states_;
    std::vector<float> state_; // scratch
};

} // namespace duo
