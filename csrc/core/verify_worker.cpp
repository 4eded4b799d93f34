#include "verify_worker.h"

#include <algorithm>
#include <exception>

#include "../error.h"
#include "listen_loop.h"
#include "same.h"

namespace duo {

void verify_worker::run() noexcept {
    const auto look = [this] {
        request * req = nullptr;
        if (wires_.requests.try_pop(req)) {
            req->job != nullptr ? serve_errand(*req) : serve(*req);
            return found::work;
        }
        take_nodes(); // nobody else empties the ring
        return found::nothing;
    };
    listen_until(wires_.verify_bell, bell::forever, [this] { return wires_.requests.closed(); }, look);
    wires_.verdicts.close();
    wires_.chunks.close();
}

void verify_worker::serve(request & req) {
    finish_reason why = finish_reason::error;
    try {
        begin(req);
        if (text_.finish() == finish_reason::none || req.n_predict == 0) {
            prompt();
        }
        while (text_.finish() == finish_reason::none && !text_.cancelled()) {
            verify(make_plan());
        }
        why = text_.finish() != finish_reason::none ? text_.finish() : finish_reason::cancelled;
    } catch (const std::exception & e) {
        req.error = failure_of(e);
    } catch (...) {
        req.error = {error_kind::internal, "the target model failed for an unknown reason"};
    }
    end(why);
}

void verify_worker::begin(request & req) {
    take_nodes(); // no text is running; but a draft elsewhere may have come or gone
    text_.begin(req);
    text_.set_draft_read(n_same(draft_read_, text_.tokens()));
    plan_params params = req.plan;
    params.has_model   = draft_wanted(req);
    params.sampled     = !req.sampling.greedy();
    planner_.begin(params, model_.n_branch());
    forget_late_begins();
    if (params.has_model && reachable_) {
        if (planner_.draft_begins_late()) {
            text_.set_contact(contact::owed);
        } else {
            begin_draft(req);
        }
    }
}

// The target's pass over rows_, from t0 to t1.
decode_status verify_worker::timed_decode(int64_t & t0, int64_t & t1) {
    t0 = now_us();
    wires_.verify_busy.begin(t0);
    const auto book = [&] {
        t1 = now_us();
        wires_.verify_busy.end(t1);
        text_.count_busy(t1 - t0);
    };
    try {
        const decode_status status = model_.decode(rows_, text_.req().cancelled);
        book();
        return status;
    } catch (...) {
        book(); // or the clock would run on
        throw;
    }
}

// Evaluates the prompt, except the rows that the first verification takes.
void verify_worker::prompt() {
    const auto & tokens = text_.tokens();
    model_.use_threads(0);
    const size_t n_kept = std::min(size_t(n_same(cached_, tokens)), tokens.size() - 1);
    if (n_kept < cached_.size()) {
        const bool kept = model_.rollback(0, int32_t(n_kept));
        if (!kept && !model_.rollback(0, 0)) {
            throw error("the target's cache could not be cleared");
        }
        cached_.resize(kept ? n_kept : 0);
    }
    text_.stats().n_prompt_cached = int32_t(cached_.size());

    const size_t n_batch = size_t(model_.n_batch());
    const size_t n_first = n_batch > n_draft_cap && text_.req().n_predict != 0 ? n_batch - n_draft_cap : 1;
    while (tokens.size() - cached_.size() > n_first && !text_.cancelled()) {
        const size_t n = std::min(n_batch, tokens.size() - cached_.size() - 1);
        rows_.clear();
        for (size_t pos = cached_.size(); pos < cached_.size() + n; ++pos) {
            rows_.push_back({.token = tokens[pos], .pos = int32_t(pos)});
        }
        int64_t             t0     = 0;
        int64_t             t1     = 0;
        const decode_status status = timed_decode(t0, t1);
        if (wires_.tracing) {
            wires_.verify_trace.try_push({.what   = trace_event::kind::prompt,
                                          .slot   = text_.req().slot,
                                          .n_rows = int32_t(n),
                                          .t0_us  = t0,
                                          .t1_us  = t1});
        }
        if (status == decode_status::stopped) {
            return;
        }
        cached_.insert(cached_.end(), tokens.begin() + std::ptrdiff_t(cached_.size()),
                       tokens.begin() + std::ptrdiff_t(cached_.size() + n));
    }
}

void verify_worker::clear_cache() noexcept {
    cached_.clear();
    try {
        for (int32_t b = 0; b < model_.n_branch(); ++b) {
            model_.rollback(b, 0);
        }
    } catch (...) {
        // the next request meets the same failure and reports it
    }
}

void verify_worker::end(finish_reason why) {
    request &       req       = text_.req();
    const request * draft_req = text_.draft_request();
    if (draft_req != nullptr && !draft_req->draft_done.load(std::memory_order_acquire)) {
        end_owed_ = !wires_.verdicts.try_push({.what = verdict_msg::kind::end, .slot = req.slot});
    }
    if (why == finish_reason::error) {
        clear_cache(); // unknown after a failure
    }
    req.stats.t_end_us = now_us();
    if (req.stats.n_passes == 0) {
        req.stats.prompt_us = req.stats.t_end_us - req.stats.t_begin_us; // it ended before the prompt did
    }
    wires_.chunks.push({.what   = chunk_msg::kind::end,
                        .finish = why,
                        .slot   = req.slot,
                        .n_drop = text_.n_drop(),
                        .t_us   = req.stats.t_end_us});
    const auto & tokens = text_.tokens();
    draft_read_.assign(tokens.begin(), tokens.begin() + std::min(text_.n_draft_read(), text_.n_tokens()));
    text_.end();
}

} // namespace duo
