#include "verify_worker.h"

#include <algorithm>
#include <exception>

#include "listen_loop.h"
#include "same.h"

namespace duo {

namespace {
constexpr uint32_t n_quiet_most = 256; // verdicts before a draft at rest is woken to take them
constexpr int32_t  n_hoped      = 256; // tokens that a text without a limit is taken to have
} // namespace

void verify_worker::run() noexcept {
    const auto look = [this] {
        request * req = nullptr;
        if (wires_.requests.try_pop(req)) {
            serve(*req);
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
        if (finish_ == finish_reason::none || req.n_predict == 0) {
            prompt();
        }
        while (finish_ == finish_reason::none && !cancelled()) {
            verify(make_plan());
        }
        why = finish_ != finish_reason::none ? finish_ : finish_reason::cancelled;
    } catch (const std::exception & e) {
        req.error = e.what();
    } catch (...) {
        req.error = "the target model failed for an unknown reason";
    }
    end(why);
}

// Rows for drafted tokens that context, batch and n_predict leave beside the root.
int32_t verify_worker::n_room() const {
    const int32_t n = std::min(model_.n_ctx(), model_.n_batch() + int32_t(cached_.size())) - n_text();
    return req_->n_predict < 0 ? n : std::min(n, req_->n_predict - req_->stats.n_predicted - 1);
}

void verify_worker::begin(request & req) {
    take_nodes(); // of no text any more; but is a draft elsewhere to be reached?
    req_       = &req;
    text_      = req.prompt;
    finish_    = req.n_predict == 0 ? finish_reason::length : finish_reason::none;
    t_verdict_ = 0;
    was_hit_   = false;
    mirror_.begin(req.id, text_);
    ngrams_.begin(req.plan.ngram, text_);
    stops_.begin(req.stop);
    resume(req);

    req.stats            = {};
    req.stats.t_begin_us = now_us();
    req.stats.n_prompt   = n_text();

    n_draft_read_      = n_same(draft_read_, text_);
    plan_params params = req.plan;
    params.has_model   = draft_wanted(req);
    params.sampled     = req.sampling.temp > 0.0f;
    planner_.begin(params, model_.n_branch());
    std::erase_if(late_begins_, [](const auto & r) { return r->draft_done.load(std::memory_order_acquire); });
    contact_ = params.has_model && reachable_ && planner_.draft_begins_late() ? contact::owed : contact::none;
    if (params.has_model && reachable_ && contact_ == contact::none) {
        begin_draft(req);
    }
}

// What was generated before a link was lost: a stop string may have begun in it, and only the end may be missing.
void verify_worker::resume(const request & req) {
    for (size_t i = text_.size() - size_t(req.n_generated); i < text_.size(); ++i) {
        if (model_.is_end(text_[i])) {
            finish_ = finish_reason::stop;
            return;
        }
        if (const auto r = stops_.add(model_.piece(text_[i])); r.stopped) {
            finish_ = finish_reason::stop;
            n_drop_ = int32_t(r.n_drop);
            return;
        }
    }
    if (req.n_generated > 0 && n_text() >= model_.n_ctx()) {
        finish_ = finish_reason::length;
    }
}

bool verify_worker::draft_wanted(const request & req) const {
    return draft_ != draft_place::none && req.plan.has_model && req.plan.mode != run_mode::plain &&
           req.plan.n_max != 0 && req.n_predict != 0;
}

// On shared cores the first token comes first, and the draft reads the text when that is worth its time.
void verify_worker::begin_draft_if_it_pays() {
    if (contact_ != contact::owed || req_->stats.n_passes == 0 || planner_.stance_now() == stance::rest) {
        return;
    }
    const int64_t elapsed = now_us() - req_->stats.t_begin_us;
    const int32_t n_left =
        req_->n_predict < 0 ? std::max(n_hoped, req_->stats.n_predicted) : req_->n_predict - req_->stats.n_predicted;
    if (planner_.draft_pays(reading_us(), n_left, elapsed)) {
        begin_draft_in_mid_text();
        contact_ = drafting() ? contact::reading : contact_;
    }
}

// How long the draft will read: as long as the target would, but for its smaller size and for what it has cached.
int64_t verify_worker::reading_us() const {
    const pair_profile & p    = planner_.profile();
    const double         pass = p.pass_us(1, false);
    const double         c    = pass > 0.0 ? std::min(1.0, p.step_us(1, false) / pass) : 1.0;
    return int64_t(c * row_us_ * (n_text() - n_draft_read_));
}

// A draft that begins in mid-text, or again, begins with the text as it is now.
void verify_worker::begin_draft_in_mid_text() {
    contact_                       = contact::none;
    constexpr uint64_t n_most      = uint64_t(1) << 22; // such ids lie above those of the engine's requests
    auto               r           = std::make_unique<request>();
    static_cast<text_params &>(*r) = *req_;
    r->prompt                      = text_;
    r->slot                        = req_->slot;
    r->draft                       = req_->draft;
    r->id                          = request_node((++n_late_begins_ % n_most + 1) << 40 | (req_->id & 0xffffffffff));
    mirror_.begin(r->id, text_);
    std::erase_if(late_begins_, [](const auto & a) { return a->draft_done.load(std::memory_order_acquire); });
    late_begins_.push_back(std::move(r));
    begin_draft(*late_begins_.back());
}

// The draft starts on its prompt while the target evaluates its own.
void verify_worker::begin_draft(const request & req) {
    draft_request_ = &req;
    if (end_owed_) {
        end_owed_ = !wires_.verdicts.try_push({.what = verdict_msg::kind::end, .slot = req.slot});
    }
    if (end_owed_) {
        return;
    }
    req.draft_done.store(false, std::memory_order_relaxed);
    contact_ = contact::at_work;
    tell_draft({.what = verdict_msg::kind::begin, .slot = req.slot, .req = &req});
    if (!drafting()) {
        req.draft_done.store(true, std::memory_order_relaxed);
    }
}

// The target's pass over rows_, from t0 to t1.
decode_status verify_worker::timed_decode(int64_t & t0, int64_t & t1) {
    t0 = now_us();
    wires_.verify_busy.begin(t0);
    const auto book = [&] {
        t1 = now_us();
        wires_.verify_busy.end(t1);
        req_->stats.busy_us += t1 - t0;
        t_elsewhere_ += t1 - t0;
    };
    try {
        const decode_status status = model_.decode(rows_, req_->cancelled);
        book();
        return status;
    } catch (...) {
        book(); // or the clock would run on
        throw;
    }
}

// Evaluates the prompt but for the rows that fit into the first verification.
void verify_worker::prompt() {
    model_.use_threads(0);
    const size_t n_kept = std::min(size_t(n_same(cached_, text_)), text_.size() - 1);
    if (n_kept < cached_.size()) {
        const bool kept = model_.rollback(0, int32_t(n_kept));
        if (!kept && !model_.rollback(0, 0)) {
            throw std::runtime_error("the target's cache could not be cleared");
        }
        cached_.resize(kept ? n_kept : 0);
    }
    req_->stats.n_prompt_cached = int32_t(cached_.size());

    const size_t n_batch = size_t(model_.n_batch());
    const size_t n_last  = std::max<size_t>(1, n_batch > n_draft_cap ? n_batch - n_draft_cap : 1);
    while (text_.size() - cached_.size() > n_last && !cancelled()) {
        const size_t n = std::min(n_batch, text_.size() - cached_.size() - 1);
        rows_.clear();
        for (size_t pos = cached_.size(); pos < cached_.size() + n; ++pos) {
            rows_.push_back({.token = text_[pos], .pos = int32_t(pos)});
        }
        int64_t             t0     = 0;
        int64_t             t1     = 0;
        const decode_status status = timed_decode(t0, t1);
        if (wires_.tracing) {
            wires_.verify_trace.try_push({.what   = trace_event::kind::prompt,
                                          .slot   = req_->slot,
                                          .n_rows = int32_t(n),
                                          .t0_us  = t0,
                                          .t1_us  = t1});
        }
        if (status == decode_status::stopped) {
            return;
        }
        cached_.insert(cached_.end(), text_.begin() + std::ptrdiff_t(cached_.size()),
                       text_.begin() + std::ptrdiff_t(cached_.size() + n));
    }
}

// The way to a draft that is elsewhere opened or broke. Whatever comes from now on belongs to a new beginning.
void verify_worker::on_link(bool up) {
    reachable_ = up;
    if (req_ == nullptr) {
        return;
    }
    if (!up && drafting()) {
        contact_      = contact::none;
        req_->warning = "the draft's host was lost; the text went on without it until it came back";
    } else if (!up && contact_ == contact::returned) {
        contact_ = contact::none;
    } else if (up && contact_ == contact::none && draft_wanted(*req_)) {
        contact_ = contact::returned;
    }
}

void verify_worker::tell_draft(verdict_msg v) {
    // By turn a guess that no pass has room for would only slow the pass down.
    const int32_t n_most = planner_.stance_now() == stance::by_turn ? std::max(0, n_room()) : n_draft_cap;
    v.n_ahead            = int16_t(std::min<int32_t>(planner_.n_ahead(), n_most));
    v.n_branch           = planner_.n_branch();
    v.n_want             = planner_.n_want();
    v.branch_price       = planner_.branch_price();
    v.least_path         = planner_.least_path();
    v.n_threads          = int16_t(planner_.threads().draft);
    // A draft that is to rest need not be woken for each token. One that is thousands of verdicts behind is of no use
    // to this text; waiting for it would be worse.
    const bool rest = v.what == verdict_msg::kind::verdict && v.n_ahead == 0 && !planner_.measuring() &&
                      ++n_quiet_ % n_quiet_most != 0;
    if (drafting() && !(rest ? wires_.verdicts.try_push_quiet(v) : wires_.verdicts.try_push(v))) {
        contact_      = contact::none;
        req_->warning = "the draft fell too far behind; the text went on without it";
    }
}

void verify_worker::end(finish_reason why) {
    request & req = *req_;
    if (draft_request_ != nullptr && !draft_request_->draft_done.load(std::memory_order_acquire)) {
        end_owed_ = !wires_.verdicts.try_push({.what = verdict_msg::kind::end, .slot = req.slot});
    }
    if (why == finish_reason::error) {
        cached_.clear(); // unknown after a failure
        try {
            for (int32_t b = 0; b < model_.n_branch(); ++b) {
                model_.rollback(b, 0);
            }
        } catch (...) {
            // the next request meets the same failure and reports it
        }
    }
    req.stats.t_end_us = now_us();
    if (req.stats.n_passes == 0) {
        req.stats.prompt_us = req.stats.t_end_us - req.stats.t_begin_us; // it ended before the prompt did
    }
    wires_.chunks.push(
        {.what = chunk_msg::kind::end, .finish = why, .slot = req.slot, .n_drop = n_drop_, .t_us = req.stats.t_end_us});
    n_drop_ = 0;
    draft_read_.assign(text_.begin(), text_.begin() + std::min(n_draft_read_, n_text()));
    req_           = nullptr;
    draft_request_ = nullptr;
}

} // namespace duo
