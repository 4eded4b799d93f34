// The target's thread. It takes nodes, chooses what to verify, evaluates one pass, walks, commits, and sends chunks and
// the verdicts. Several texts share a pass.
#pragma once

#include <cstdint>
#include <vector>

#include "active_texts.h"
#include "drafts.h"
#include "errand_desk.h"
#include "pass_clock.h"
#include "pass_planner.h"
#include "reading_plan.h"
#include "target_cache.h"
#include "target_pass.h"
#include "token_walk.h"
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
    [[nodiscard]] worker_usage usage() const { return board_.read(); }
    [[nodiscard]] pass_counts  passes() const { return passes_.read(); }

    // Until the request channel is closed. Does not throw.
    void run() noexcept;

  private:
    static constexpr int32_t n_waits_most = 16 * n_draft_cap; // so that useless messages cannot hold up a pass for ever

    // The loop.
    bool work() noexcept;
    bool work_once();
    bool serve_errand();
    void tell_usage() noexcept;

    // A text's begin and end (verify_texts.cpp).
    bool take_requests() noexcept;
    void begin(request & req) noexcept;
    void begin_text(verify_slot & s, request & req);
    void end_texts() noexcept;
    void end(verify_slot & s, finish_reason why) noexcept;
    void fail(verify_slot & s, failure why) noexcept;
    void shift_contexts();

    // Passes (verify_passes.cpp).
    void work_alone(verify_slot & s);
    void work_together();
    bool plan_together();
    bool plan_alone(verify_slot & s);
    bool evaluate(int32_t n_threads);
    void work_again(verify_slot & s, size_t n_good);
    void repair(verify_slot & s);
    void on_evaluated(verify_slot & s);
    void on_failed_pass(failure why) noexcept;

    token_model & model_;
    wires &       wires_;
    target_cache  cache_;
    target_pass   pass_;
    pass_planner  plans_;
    drafts        drafts_;
    token_walk    walk_;
    reading_plan  reading_;
    errand_desk   errands_;

    // Not begun yet: an errand waits until no text is written, and a text until none is parked. First come, first
    // served. Like the other lists of texts it has room for all from the beginning.
    std::vector<request *>     waiting_;
    active_texts               active_;
    std::vector<verify_slot *> again_; // scratch: texts of a pass that failed

    usage_board  board_;
    worker_usage usage_; // scratch
    pass_board   passes_;
    pass_clock   clock_;
    int64_t      t_together_ = 0; // when the last pass over several texts ended; 0: the last pass was another
};

// Tells the reader that its text has ended. The request belongs to the reader now.
void send_end(wires & w, const request & req, finish_reason why, int32_t n_drop = 0) noexcept;

} // namespace duo
