// The target's thread: a loop of rounds, one pass each. Several texts share a pass.
#pragma once

#include <cstdint>

#include "drafts.h"
#include "pass_evaluator.h"
#include "pass_planner.h"
#include "pass_texts.h"
#include "target_cache.h"
#include "target_pass.h"
#include "text_desk.h"
#include "token_walk.h"
#include "verify_round.h"
#include "wires/usage.h"
#include "wires/wires.h"

namespace duo {

// All members belong to the thread that calls run().
class verify_worker {
  public:
    // n_texts: texts at once. The model's branches are divided among them.
    // n_kept_bytes: of kept_texts.
    verify_worker(token_model & model, wires & w, drafts::place draft, const pair_prior & prior = {},
                  int32_t n_texts = 1, int64_t n_kept_bytes = 0);

    // What was learned about the pair. Only while no request runs.
    [[nodiscard]] planner & plans() { return plans_.plans(); }

    // From any thread.
    [[nodiscard]] worker_usage usage() const { return texts_.usage(); }
    [[nodiscard]] pass_counts  passes() const { return evaluator_.passes(); }

    // Until the request channel is closed. Does not throw.
    void run() noexcept;

  private:
    bool work() noexcept;
    bool work_once();

    wires &        wires_;
    target_cache   cache_;
    target_pass    pass_;
    pass_planner   plans_;
    drafts         drafts_;
    pass_texts     pass_texts_;
    text_desk      texts_;
    token_walk     walk_;
    pass_evaluator evaluator_;
    verify_round   round_;
};

} // namespace duo
