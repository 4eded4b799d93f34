#include "verify_worker.h"

#include "base/error.h"
#include "rings/listen_loop.h"

namespace duo {

verify_worker::verify_worker(token_model & model, wires & w, drafts::place draft, const pair_prior & prior,
                             int32_t n_texts, int64_t n_kept_bytes)
    : wires_(w), cache_(model, size_t(n_texts), n_kept_bytes, w.features != nullptr), pass_(model, w, size_t(n_texts)),
      plans_(model, cache_, w, prior), drafts_(model, cache_, plans_, w, draft), pass_texts_(model, size_t(n_texts)),
      texts_(model, w, cache_, pass_, plans_, drafts_, pass_texts_), walk_(model, cache_, pass_, plans_, drafts_, w),
      evaluator_(w, cache_, pass_, plans_, drafts_, pass_texts_, walk_, texts_),
      round_(model, w, cache_, pass_, plans_, drafts_, pass_texts_, texts_, walk_, evaluator_) {
}

void verify_worker::run() noexcept {
    const auto look = [this] { return work() ? found::work : found::nothing; };
    listen_until(wires_.verify_bell, bell::forever, [this] { return wires_.requests.closed(); }, look);
    drafts_.stop_reading();
    wires_.verdicts.close();
    wires_.chunks.close();
}

// One pass, or whatever else there is to do. False: nothing. Whatever fails in it ends texts, and not the thread.
bool verify_worker::work() noexcept {
    evaluator_.begin();
    try {
        if (!work_once()) {
            return false;
        }
    } catch (...) {
        evaluator_.on_failure(failure_caught());
    }
    evaluator_.book();
    texts_.end_finished();
    texts_.tell_usage();
    return true;
}

bool verify_worker::work_once() {
    const bool any = texts_.update();
    if (texts_.active().empty()) {
        round_.idle();
        return texts_.serve_errand() || any || texts_.any_waiting();
    }
    round_.make();
    return true;
}

} // namespace duo
