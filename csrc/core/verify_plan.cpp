// Plans the next pass: takes the tree as it is known now, asks the planner, and waits for the draft if that pays.
#include <algorithm>

#include "verify_worker.h"

namespace duo {

plan verify_worker::make_plan() {
    constexpr int32_t n_waits_most   = 16 * n_draft_cap; // so that useless messages cannot hold up the text for ever
    constexpr int64_t reading_factor = 4;
    int64_t           t0             = 0;
    plan              p;
    for (int32_t i = 0;; ++i) {
        const uint32_t heard = wires_.verify_bell.listen();
        take_nodes();
        if (text_.draft_contact() == contact::returned) {
            begin_draft_in_mid_text();
        }
        begin_draft_if_it_pays();
        text_.grow_tree(planner_, n_room());
        // While prompt rows are missing, evaluating them is better than waiting. Turn-taking waits before the first
        // pass if the whole prompt was cached.
        const int32_t n_new   = text_.n_tokens() - int32_t(cached_.size());
        const bool    begun   = text_.stats().n_passes > 0 || (text_.req().plan.mode == run_mode::sync && n_new == 1);
        const bool    growing = text_.draft_may_grow() && begun && !text_.cancelled() && i < n_waits_most;
        p                     = planner_.next(text_.tree(), {.n_room  = n_room(),
                                                             .growing = growing,
                                                             .fresh   = !text_.was_hit(),
                                                             .n_base  = n_new,
                                                             .away_us = wires_.rtt_us.load(std::memory_order_relaxed)});
        if (p.wait_us <= 0) {
            break;
        }
        const int64_t now = now_us();
        t0                = t0 == 0 ? now : t0;
        // A draft that reads is waited for, because on the same cores both at once would take longer.
        const bool    reads   = text_.draft_contact() == contact::reading;
        const int64_t wait_us = reads ? std::max(p.wait_us, reading_factor * reading_us()) : p.wait_us;
        if (!wires_.verify_bell.wait(heard, now + wait_us)) {
            text_.set_contact(contact::late); // a draft that hangs costs one wait, not one for each token
        }
    }
    if (t0 != 0) {
        const int64_t t1 = now_us();
        text_.count_wait(t1 - t0);
        if (wires_.tracing) {
            wires_.verify_trace.try_push(
                {.what = trace_event::kind::wait, .slot = text_.req().slot, .t0_us = t0, .t1_us = t1});
        }
    }
    return p;
}

} // namespace duo
