#include "verify_worker.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.h"
#include "rings/listen_loop.h"

namespace duo {

verify_worker::verify_worker(token_model & model, wires & w, drafts::place draft, const pair_prior & prior,
                             int32_t n_texts, int64_t n_kept_bytes)
    : model_(model), wires_(w), cache_(model, size_t(n_texts), n_kept_bytes, w.features != nullptr),
      pass_(model, w, size_t(n_texts)), plans_(model, cache_, w, prior), drafts_(model, cache_, plans_, w, draft),
      walk_(model, cache_, pass_, plans_, drafts_, w), reading_(model, size_t(n_texts)),
      errands_(model, cache_, drafts_, w), active_(cache_, pass_, plans_, drafts_, w.on_host), board_(size_t(n_texts)) {
    waiting_.reserve(size_t(n_texts)); // the pipeline sends no more requests than there are slots
    again_.reserve(size_t(n_texts));
    usage_.cells.reserve(size_t(n_texts));
}

void verify_worker::run() noexcept {
    const auto look = [this] { return work() ? found::work : found::nothing; };
    listen_until(wires_.verify_bell, bell::forever, [this] { return wires_.requests.closed(); }, look);
    wires_.verdicts.close();
    wires_.chunks.close();
}

// One pass, or whatever else there is to do. False: nothing. Whatever fails in it ends texts, and not the thread.
bool verify_worker::work() noexcept {
    pass_.clear();
    clock_.begin_pass();
    try {
        if (!work_once()) {
            return false;
        }
    } catch (...) {
        on_failed_pass(failure_caught());
    }
    clock_.book(passes_);
    end_texts();
    tell_usage();
    return true;
}

bool verify_worker::work_once() {
    const bool any = take_requests();
    drafts_.take_nodes(); // nobody else empties the ring
    end_texts();
    active_.wake_parked(size_t(model_.facts().n_cells));
    shift_contexts();
    t_together_ = active_.size() > 1 ? t_together_ : 0;
    if (active_.empty()) {
        clock_.stop();
        return serve_errand() || any || !waiting_.empty();
    }
    clock_.start();
    if (active_.size() == 1) {
        work_alone(*active_.all().front());
    } else {
        work_together();
    }
    return true;
}

bool verify_worker::serve_errand() {
    if (waiting_.empty() || waiting_.front()->job == nullptr) {
        return false;
    }
    request & req = *waiting_.front();
    waiting_.erase(waiting_.begin());
    const finish_reason why = errands_.serve(req);
    tell_usage(); // before the caller knows of the end
    send_end(wires_, req, why);
    return true;
}

void verify_worker::tell_usage() noexcept {
    usage_ = {.cells      = std::move(usage_.cells),
              .n_begins   = int32_t(drafts_.n_late_begins()),
              .n_kept     = int32_t(cache_.kept().size()),
              .kept_bytes = cache_.kept().bytes() + model_.mark_bytes()};
    usage_.cells.clear();
    for (const verify_slot & s : cache_.slots()) {
        usage_.cells.push_back(int32_t(s.cached.size()));
        usage_.n_active += s.text.active() ? 1 : 0;
        usage_.n_parked += s.parked.waits ? 1 : 0;
        usage_.n_branches += s.cached.empty() ? 0 : 1; // a tree's other branches are dropped after its pass
    }
    board_.write(usage_);
}

} // namespace duo
