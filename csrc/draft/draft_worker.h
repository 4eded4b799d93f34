// The draft's thread: it takes verdicts, grows the trees of its texts, and sends the new nodes.
#pragma once

#include <cstdint>
#include <optional>

#include "draft_step.h"
#include "draft_texts.h"
#include "model/token_model.h"
#include "node_choice.h"
#include "node_sender.h"
#include "step_evaluator.h"
#include "too_late.h"
#include "wires/usage.h"
#include "wires/wires.h"

namespace duo {

// All members belong to the thread that calls run().
class draft_worker {
  public:
    // n_texts: texts at once; messages name them by slots from 0. Throws duo::error if the model has fewer branches.
    draft_worker(token_model & model, wires & w, int32_t n_texts = 1);

    // From any thread.
    [[nodiscard]] worker_usage usage() const { return board_.read(); }

    // Until the verdict channel is closed. Does not throw.
    void run() noexcept;

  private:
    bool take_verdicts() noexcept;
    void take(draft_text & text, const verdict_msg & v);
    void name(const std::optional<node_msg> & root);
    void take_orders(draft_text & text, const verdict_msg & v);
    void take_features(draft_text & text, const verdict_msg & v);
    void do_errand(draft_text & text, const request & req) noexcept;
    void do_errand(draft_text & text, errand & job);
    void read_to_end(draft_text & text);
    void work() noexcept;
    void do_step();
    void count(const draft_step & step, int64_t t1, int64_t hidden_us);
    void tell_usage() noexcept;

    token_model &  model_;
    wires &        wires_;
    node_counter   ids_;
    draft_texts    texts_;
    too_late       late_;
    step_evaluator evaluator_;
    node_sender    sender_;
    node_choice    choice_;
    draft_step     step_;
    usage_board    board_;
    worker_usage   usage_; // scratch
};

} // namespace duo
