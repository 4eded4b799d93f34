// Begins and ends the target's texts: which requests wait, which texts are written, and who is told of an end.
#pragma once

#include <cstdint>
#include <vector>

#include "active_texts.h"
#include "drafts.h"
#include "errand_desk.h"
#include "full_cache.h"
#include "pass_planner.h"
#include "pass_texts.h"
#include "target_cache.h"
#include "target_pass.h"
#include "wires/usage.h"
#include "wires/wires.h"

namespace duo {

// Belongs to the verify worker's thread.
class text_desk {
  public:
    // All must outlive it.
    text_desk(token_model & model, wires & w, target_cache & cache, target_pass & pass, pass_planner & plans,
              drafts & all_drafts, const pass_texts & in_pass);

    [[nodiscard]] const active_texts & active() const { return active_; }
    // Makes room for n more rows: see full_cache.
    void               make_room(size_t n_rows) { full_cache_.make_room(n_rows); }
    [[nodiscard]] bool any_waiting() const { return !waiting_.empty(); }

    // What is to be done between two passes: takes requests and nodes, ends texts, and shifts contexts. False: no
    // request came or went.
    bool update();
    // Begins the texts whose turn it is. False: no request came or went.
    bool take_requests() noexcept;
    // Ends the texts that are complete or no longer wanted.
    void end_finished() noexcept;
    // Ends this one with an error.
    void fail(verify_slot & s, failure why) noexcept;
    // Does the errand whose turn it is. Only while no text is written. False: there is none.
    bool serve_errand();

    void tell_usage() noexcept;
    // From any thread.
    [[nodiscard]] worker_usage usage() const { return board_.read(); }

  private:
    void begin(request & req) noexcept;
    void begin_text(verify_slot & s, request & req);
    void end(verify_slot & s, finish_reason why) noexcept;
    void send_end(const request & req, finish_reason why, int32_t n_drop = 0) noexcept;
    void shift_contexts();

    token_model &      model_;
    wires &            wires_;
    target_cache &     cache_;
    pass_planner &     plans_;
    drafts &           drafts_;
    const pass_texts & pass_texts_;
    errand_desk        errands_;
    active_texts       active_;
    full_cache         full_cache_;
    ngram_pool         pool_; // empty on a host: one client's texts are no guesses for another's
    // Not begun yet: an errand waits until no text is written, and a text until none is parked. First come, first
    // served. Like the other lists of texts it has room for all from the beginning.
    std::vector<request *> waiting_;
    usage_board            board_;
    worker_usage           usage_; // scratch
};

} // namespace duo
