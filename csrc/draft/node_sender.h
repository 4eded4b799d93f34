// Makes the children of the nodes that a step of the draft has evaluated, and sends them to the target, together with
// what else it must know of the step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "draft_step.h"
#include "draft_text.h"
#include "model/acceptance.h"
#include "model/token_model.h"
#include "wires/wires.h"

namespace duo {

// Belongs to the draft worker's thread.
class node_sender {
  public:
    node_sender(token_model & model, wires & w, node_counter & ids) : model_(model), wires_(w), ids_(ids) {}

    // Sends the children of all nodes of the step. A text that fails ends; the others go on.
    void send(draft_step & step);
    // The text has nothing to evaluate until the next verdict.
    void pause(draft_text & text);
    // The text goes on without the draft.
    void fail(draft_text & text, const char * why) noexcept;

  private:
    void send(draft_step & step, draft_step::part & p, bool tells_time);
    void send_block(draft_step & step, draft_step::part & p);
    void send_children(draft_step & step, draft_step::part & p, int32_t i_node, int32_t i_row, bool tells_time);
    void draw_children(draft_text & text, int32_t i_node, int32_t i_row, size_t n_most);
    void keep_likely(float p_min, int32_t n_wanted);
    void estimate(double power);
    void lower_others(draft_text & text, int32_t i_node, float said, float estimate, int16_t age);

    token_model &  model_;
    wires &        wires_;
    node_counter & ids_;
    acceptance     acceptance_;

    // Scratch.
    std::vector<token_id>  path_;
    std::vector<candidate> children_;
    std::vector<candidate> chances_;
    std::vector<float>     said_;      // of children_, log of the chance by the model
    std::vector<float>     estimates_; // the same as the tree has it
};

} // namespace duo
