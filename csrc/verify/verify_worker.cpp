#include "verify_worker.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.h"
#include "base/same.h"
#include "rings/listen_loop.h"

namespace duo {

verify_worker::verify_worker(token_model & model, wires & w, draft_place draft, const pair_prior & prior,
                             int32_t n_texts, std::optional<stance> only, int64_t n_kept_bytes)
    : model_(model), wires_(w), draft_(draft), n_branches_(std::max(1, model.n_branch() / n_texts)),
      wait_(!prior.shared), reachable_(size_t(n_texts), draft == draft_place::here), kept_(n_kept_bytes),
      board_(size_t(n_texts)) {
    planner_.expect(prior);
    pool_.expect(prior, only);
    slots_.reserve(size_t(n_texts));
    for (int32_t i = 0; i < n_texts; ++i) {
        slots_.emplace_back(model, i, n_branches_);
    }
    last_ = slots_.data();
    waiting_.reserve(slots_.size()); // the pipeline sends no more requests than there are slots
    active_.reserve(slots_.size());
    pass_.reserve(slots_.size());
    again_.reserve(slots_.size());
    usage_.cells.reserve(slots_.size());
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
    did_.reset();
    try {
        return work_once();
    } catch (...) {
        on_failed_pass(failure_caught());
    }
    spend_time();
    end_texts();
    tell_usage();
    return true;
}

bool verify_worker::work_once() {
    bool any = take_requests();
    take_nodes(); // nobody else empties the ring
    end_texts();
    wake_parked();
    t_together_ = active_.size() > 1 ? t_together_ : 0;
    if (active_.empty()) {
        t_spent_ = 0;
        if (!waiting_.empty() && waiting_.front()->job != nullptr) {
            request & errand = *waiting_.front();
            waiting_.erase(waiting_.begin());
            serve_errand(errand);
            any = true;
        }
        return any || !waiting_.empty();
    }
    t_spent_ = t_spent_ == 0 ? now_us() : t_spent_;
    if (active_.size() == 1) {
        work_alone(*active_.front());
    } else {
        work_together();
    }
    spend_time();
    end_texts();
    tell_usage();
    return true;
}

// A failure of one text is its own: if the pass had several, each is evaluated alone, and those end that fail again.
void verify_worker::on_failed_pass(failure why) noexcept {
    if (pass_.empty()) { // planning failed
        pass_ = active_;
    }
    if (pass_.size() == 1) {
        fail(*pass_.front(), std::move(why));
        return;
    }
    again_.assign(pass_.begin(), pass_.end());
    for (verify_slot * s : again_) {
        if (!s->text.active() || s->parked) {
            continue;
        }
        if (s->text.finish() != finish_reason::none) { // it needs no more rows, but the pass may have left some
            clear(*s);
            continue;
        }
        try {
            work_again(*s, s->cached.size());
        } catch (...) {
            fail(*s, failure_caught());
        }
    }
}

void verify_worker::tell_usage() noexcept {
    usage_ = {.cells      = std::move(usage_.cells),
              .n_begins   = int32_t(late_begins_.size()),
              .n_kept     = int32_t(kept_.size()),
              .kept_bytes = kept_.bytes() + model_.mark_bytes()};
    usage_.cells.clear();
    for (const verify_slot & s : slots_) {
        usage_.cells.push_back(int32_t(s.cached.size()));
        usage_.n_active += s.text.active() ? 1 : 0;
        usage_.n_parked += s.parked ? 1 : 0;
        usage_.n_branches += s.cached.empty() ? 0 : 1; // a tree's other branches are dropped after its pass
    }
    board_.write(usage_);
}

// What a plan has cost that was not carried out is counted with the next pass.
void verify_worker::spend_time() noexcept {
    if (did_.has_value()) {
        const int64_t now = now_us();
        passes_.spend(*did_, now - t_spent_);
        t_spent_ = now;
    }
}

bool verify_worker::take_requests() noexcept {
    for (request * req = nullptr; wires_.requests.try_pop(req);) {
        waiting_.push_back(req);
    }
    bool any = std::erase_if(waiting_, [this](request * req) {
                   const bool cancelled = req->cancelled.load(std::memory_order_relaxed);
                   if (cancelled) {
                       end_unbegun(*req, finish_reason::cancelled);
                   }
                   return cancelled;
               }) > 0;
    while (!waiting_.empty() && waiting_.front()->job == nullptr && !any_parked()) {
        request & req = *waiting_.front();
        waiting_.erase(waiting_.begin());
        begin(req);
        any = true;
    }
    return any;
}

void verify_worker::end_unbegun(request & req, finish_reason why) noexcept {
    wires_.chunks.push({.what = chunk_msg::kind::end, .finish = why, .slot = req.slot, .t_us = now_us()});
}

void verify_worker::begin(request & req) noexcept {
    take_nodes(); // the text has no draft yet; but a draft elsewhere may have come or gone
    verify_slot * s = nullptr;
    try {
        s = &choose_slot(req);
        begin_text(*s, req);
    } catch (...) {
        if (s != nullptr) {
            fail(*s, failure_caught());
        } else {
            req.error = failure_caught();
            end_unbegun(req, finish_reason::error);
        }
    }
}

void verify_worker::begin_text(verify_slot & s, request & req) {
    s.text.begin(req);
    req.place.store(s.index, std::memory_order_relaxed);
    s.n_begun = ++n_begun_;
    s.parked  = false;
    active_.push_back(&s);
    keep_beginning(s);
    s.text.set_draft_read(n_same(s.draft_read, s.text.tokens()));
    forget_late_begins();
    if (!draft_wanted(req) || !reachable_[size_t(line_of(s))]) {
        return;
    }
    // The client of a host begins its draft together with the text, and only then.
    // A draft head reads the prompt as the target's states come. It could not have those that came before.
    if (!wires_.on_host && !wires_.features && (planner_.draft_begins_late() || active_.size() > 1)) {
        s.text.set_contact(contact::owed);
    } else {
        if (active_.size() == 1) {
            plan_alone(s); // for the draft's first orders
        }
        begin_draft(s, req);
    }
}

void verify_worker::fail(verify_slot & s, failure why) noexcept {
    if (s.text.active()) {
        s.text.req().error = std::move(why);
        end(s, finish_reason::error);
    }
}

// Ends the texts that are complete or no longer wanted.
void verify_worker::end_texts() noexcept {
    for (verify_slot & s : slots_) {
        if (!s.text.active()) {
            continue;
        }
        const bool reads = s.text.req().n_predict == 0 && n_to_read(s) > 0; // the prompt is read for the next text
        if (s.text.finish() != finish_reason::none && !(reads && !s.text.cancelled())) {
            end(s, s.text.finish());
        } else if (s.text.cancelled()) {
            end(s, finish_reason::cancelled);
        }
    }
}

void verify_worker::end(verify_slot & s, finish_reason why) noexcept {
    request & req = s.text.req();
    end_draft(s);
    if (why == finish_reason::error) {
        clear(s);
    } else {
        forget_rejected(s);
    }
    req.stats.t_end_us = now_us();
    if (req.stats.n_passes == 0) {
        req.stats.prompt_us = req.stats.t_end_us - req.stats.t_begin_us; // it ended before the prompt did
    }
    keep_what_was_learned(s);
    const chunk_msg last{.what   = chunk_msg::kind::end,
                         .finish = why,
                         .slot   = req.slot,
                         .n_drop = s.text.n_drop(),
                         .t_us   = req.stats.t_end_us};
    s.text.end();
    s.parked = false;
    std::erase(active_, &s);
    alone_ = alone_ == &s ? nullptr : alone_;
    last_  = &s;
    tell_usage();             // before the reader knows of the end
    wires_.chunks.push(last); // the request belongs to the reader now
}

void verify_worker::keep_what_was_learned(verify_slot & s) noexcept {
    const auto & tokens = s.text.tokens();
    try {
        s.draft_read.assign(tokens.begin(), tokens.begin() + std::min(s.text.n_draft_read(), s.text.n_tokens()));
        s.text.req().learned = std::make_shared<const pair_profile>(planner_.profile());
    } catch (...) {
        s.draft_read.clear(); // there is no memory for it, and the text needs neither
    }
}

} // namespace duo
