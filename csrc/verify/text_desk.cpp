#include "text_desk.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "context_shift.h"

namespace duo {

text_desk::text_desk(token_model & model, wires & w, target_cache & cache, target_pass & pass, pass_planner & plans,
                     drafts & all_drafts, const pass_texts & in_pass)
    : model_(model), wires_(w), cache_(cache), plans_(plans), drafts_(all_drafts), pass_texts_(in_pass),
      errands_(model, cache, all_drafts, w), active_(cache.slots().size()),
      full_cache_(active_, cache, pass, plans, all_drafts, w.on_host), board_(cache.slots().size()) {
    waiting_.reserve(cache.slots().size()); // the pipeline sends no more requests than there are slots
    usage_.cells.reserve(cache.slots().size());
}

bool text_desk::update() {
    const bool any = take_requests();
    drafts_.take_nodes(); // nobody else empties the ring
    end_finished();
    full_cache_.wake_parked(size_t(model_.facts().n_cells));
    shift_contexts();
    return any;
}

bool text_desk::take_requests() noexcept {
    for (request * req = nullptr; wires_.requests.try_pop(req);) {
        waiting_.push_back(req);
    }
    bool any = std::erase_if(waiting_, [this](request * req) {
                   const bool cancelled = req->cancelled.load(std::memory_order_relaxed);
                   if (cancelled) {
                       send_end(*req, finish_reason::cancelled);
                   }
                   return cancelled;
               }) > 0;
    while (!waiting_.empty() && waiting_.front()->job == nullptr && !full_cache_.any_parked()) {
        request & req = *waiting_.front();
        waiting_.erase(waiting_.begin());
        begin(req);
        any = true;
    }
    return any;
}

// Tells the reader that its text has ended. The request belongs to the reader now.
void text_desk::send_end(const request & req, finish_reason why, int32_t n_drop) noexcept {
    wires_.chunks.push(
        {.what = chunk_msg::kind::end, .finish = why, .slot = req.slot, .n_drop = n_drop, .t_us = now_us()});
}

void text_desk::begin(request & req) noexcept {
    drafts_.take_nodes(); // the text has no draft yet; but a draft elsewhere may have come or gone
    verify_slot * s = nullptr;
    try {
        s = &cache_.choose_slot(req);
        begin_text(*s, req);
    } catch (...) {
        if (s != nullptr && s->text.active()) { // or it had no memory to begin
            fail(*s, failure_caught());
        } else {
            req.error = failure_caught();
            send_end(req, finish_reason::error);
        }
    }
}

void text_desk::begin_text(verify_slot & s, request & req) {
    drafts_.begin_text(s, req);
    s.draft.begin(req);
    s.text.begin(req, {.pool = &pool_, .lookup = wires_.lookup.get()});
    req.place.store(s.index, std::memory_order_relaxed);
    cache_.touch(s);
    s.parked = {};
    active_.add(s);
    cache_.keep_beginning(s);
    drafts_.forget_late_begins();
    if (!drafts_.reachable(s)) {
        return;
    }
    // The client of a host begins its draft together with the text, and only then.
    // A draft head reads the prompt as the target's states come. It could not have those that came before.
    if (!wires_.on_host && !wires_.features && (plans_.plans().worth().begins_late() || active_.size() > 1)) {
        s.draft.set(draft_contact::state::owed);
    } else {
        if (active_.size() == 1) {
            plans_.texts().begin_alone(s); // for the draft's first orders
        }
        drafts_.begin(s, req);
    }
}

void text_desk::fail(verify_slot & s, failure why) noexcept {
    if (s.text.active()) {
        s.text.req().error = std::move(why);
        end(s, finish_reason::error);
    }
}

void text_desk::end_finished() noexcept {
    for (verify_slot & s : cache_.slots()) {
        if (!s.text.active()) {
            continue;
        }
        // Without tokens to write, the prompt is read for the next text.
        const bool reads = s.text.req().n_predict == 0 && pass_texts_.n_to_read(s) > 0;
        if (s.text.finish() != finish_reason::none && !(reads && !s.text.cancelled())) {
            end(s, s.text.finish());
        } else if (s.text.cancelled()) {
            end(s, finish_reason::cancelled);
        }
    }
}

// All modes shift at the same length of a text, and all rows but the root's are evaluated before.
void text_desk::shift_contexts() {
    for (verify_slot * s : active_.all()) {
        if (s->text.context().shift_due() && n_before_shift(model_, *s) == 0) {
            shift_context(model_, cache_, *s);
            drafts_.on_shift(*s);
        }
    }
}

void text_desk::end(verify_slot & s, finish_reason why) noexcept {
    request & req = s.text.req();
    drafts_.end(s);
    if (why == finish_reason::error) {
        cache_.clear(s);
    } else {
        cache_.forget_rejected(s);
    }
    req.stats.t_end_us = now_us();
    if (req.stats.n_passes == 0) {
        req.stats.prompt_us = req.stats.t_end_us - req.stats.t_begin_us; // it ended before the prompt did
    }
    s.draft.end(req, s.text.context().tokens());
    try {
        req.learned = std::make_shared<const pair_profile>(plans_.profile());
    } catch (...) {
        // there is no memory for it, and the text does not need it
    }
    if (why == finish_reason::stop || why == finish_reason::length) {
        plans_.window().on_end(req.stats.n_predicted, why == finish_reason::length);
    }
    const bool    remembered = req.plan.ngram.kind == ngram_kind::mod && !wires_.on_host;
    const auto    n_known    = size_t(req.stats.n_prompt_cached);
    const int32_t n_drop     = s.text.n_drop();
    s.text.end();
    s.parked = {};
    active_.remove(s);
    plans_.texts().on_end();
    errands_.on_end(s);
    tell_usage(); // before the reader knows of the end
    send_end(req, why, n_drop);
    if (remembered) {
        pool_.add(s.text.tokens(), n_known); // the slot keeps them until its next text
    }
    if (wires_.lookup != nullptr && !wires_.on_host && why != finish_reason::error) {
        wires_.lookup->add(s.text.tokens(), n_known);
    }
}

bool text_desk::serve_errand() {
    if (waiting_.empty() || waiting_.front()->job == nullptr) {
        return false;
    }
    request & req = *waiting_.front();
    waiting_.erase(waiting_.begin());
    const finish_reason why = errands_.serve(req);
    tell_usage(); // before the caller knows of the end
    send_end(req, why);
    return true;
}

void text_desk::tell_usage() noexcept {
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
