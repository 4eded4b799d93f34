#include "target_link.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "message_check.h"
#include "rings/listen_loop.h"
#include "wires/part_stats.h"

namespace duo {

namespace {

constexpr int16_t n_ahead_first  = 8; // orders until the target gives its own
constexpr int16_t n_branch_first = 4;

void refuse_host(const char * what) {
    throw error(error_kind::peer_lost, std::string("the verify host sent ") + what);
}

} // namespace

std::optional<text_params> target_link::wait_begin(int64_t deadline_us) {
    std::optional<text_params> text;
    const auto                 look = [&] {
        const std::lock_guard locked(wires_->link_mutex);
        lines_->nodes.sort();
        lines_->nodes.drop(slot_); // of a text that has ended
        request * req = wires_->requests_freed || running() ? nullptr : lines_->next_request(slot_);
        if (req == nullptr) {
            return found::nothing;
        }
        req_                  = req;
        now_                  = *req;
        n_predicted_          = 0;
        n_alternatives_       = now_.n_logprobs;
        req->stats            = {};
        req->stats.n_prompt   = int32_t(req->prompt.size());
        req->stats.t_begin_us = now_us();
        begin_draft();
        running_.store(true, std::memory_order_release);
        text = now_;
        return found::done;
    };
    listen_until(wires_->verify_bell, deadline_us, [this] { return closed(); }, look);
    return text;
}

// Under the mutex. False: the draft is too far behind.
bool target_link::tell_draft(verdict_msg v) {
    v.slot = slot_;
    return wires_->verdicts.try_push(v);
}

// Under the mutex. Adds what the local draft has counted since it began.
void target_link::count_draft() {
    if (drafted_ != nullptr) {
        req_->draft->count(drafted_->n_steps, drafted_->n_nodes, drafted_->busy_us, 0);
        drafted_.reset();
    }
}

// Under the mutex.
void target_link::begin_draft() {
    count_draft();
    auto & begins = wires_->begins;
    std::erase_if(begins, [](const auto & r) { return r->draft_done.load(std::memory_order_acquire); });
    n_begun_    = now_.prompt.size();
    n_verdicts_ = 0;
    drafting_   = now_.plan.has_model && now_.plan.mode != run_mode::plain && now_.plan.n_max != 0;
    if (!drafting_) {
        return;
    }
    begins.push_back(std::make_unique<request>());
    request & r                   = *begins.back();
    static_cast<text_params &>(r) = now_;
    r.slot                        = slot_;
    r.draft_done.store(false, std::memory_order_relaxed);
    drafting_ =
        tell_draft({.what = verdict_msg::kind::begin, .n_ahead = n_ahead_first, .n_branch = n_branch_first, .req = &r});
    if (!drafting_) {
        r.draft_done.store(true, std::memory_order_relaxed);
        return;
    }
    drafted_ = r.draft;
}

bool target_link::cancelled() const {
    const std::lock_guard locked(wires_->link_mutex);
    return closed() || (running() && !wires_->requests_freed && req_->cancelled.load(std::memory_order_relaxed));
}

bool target_link::take(std::vector<node_msg> & out, int64_t deadline_us) {
    return listen_until(
        wires_->verify_bell, deadline_us, [this] { return cancelled() || !running(); },
        [&] {
            const std::lock_guard locked(wires_->link_mutex);
            lines_->nodes.sort();
            return done_if(lines_->nodes.take_all(slot_, out));
        });
}

// Each verdict adds a token to the text as the draft has it, which therefore cannot be longer than the context.
// Accepted nodes need no check, as the draft has computed them itself.
void target_link::count_verdicts(std::span<const verdict_msg> verdicts) {
    n_verdicts_ += size_t(std::count_if(verdicts.begin(), verdicts.end(),
                                        [](const verdict_msg & v) { return v.what == verdict_msg::kind::verdict; }));
    if (n_begun_ + n_verdicts_ > n_text()) {
        refuse_host("more verdicts than the context has tokens");
    }
}

// It counts alternatives too. A refused message ends the link, so wrong counts do no harm then.
void target_link::check(const chunk_msg & c) {
    if (c.what == chunk_msg::kind::logprob) {
        if (++n_alternatives_ > now_.n_logprobs || c.token < 0 || std::isnan(c.logp)) {
            refuse_host("log-probabilities that nobody asked for");
        }
        return;
    }
    if (n_alternatives_ < now_.n_logprobs) {
        refuse_host("a token without its log-probabilities");
    }
    constexpr int32_t n_bytes_most = 1 << 20;
    if (c.n_hold < 0 || c.n_hold > n_bytes_most || c.n_drop < 0 || c.n_drop > n_bytes_most) {
        refuse_host("impossible lengths");
    }
    if (c.what == chunk_msg::kind::token) {
        if (c.token < 0 || now_.n_predict == 0 || now_.prompt.size() > n_text() || std::isnan(c.logp)) {
            refuse_host("more text than was asked for, or no text");
        }
    } else if (c.finish == finish_reason::none) {
        refuse_host("an end without a reason");
    }
}

void target_link::give(std::span<const verdict_msg> verdicts, std::span<const chunk_msg> chunks) {
    if (!running()) {
        return;
    }
    for (const verdict_msg & v : verdicts) {
        check_verdict(v);
    }
    count_verdicts(verdicts);
    {
        const std::lock_guard locked(wires_->link_mutex);
        for (const verdict_msg & v : verdicts) {
            // A draft that is thousands of verdicts behind is of no use to this text.
            drafting_ = drafting_ && (v.what == verdict_msg::kind::end || tell_draft(v));
        }
    }
    for (chunk_msg c : chunks) {
        check(c);
        c.slot = slot_;
        switch (c.what) {
            case chunk_msg::kind::token:
                now_.prompt.push_back(c.token);
                ++now_.n_generated;
                now_.n_predict -= now_.n_predict > 0 ? 1 : 0;
                n_alternatives_ = now_.n_logprobs < 0 ? now_.n_logprobs : 0;
                c.t_us          = now_us();
                c.hidden = c.hidden || c.token >= lines_->n_vocab; // a special token that the draft does not have
                if (++n_predicted_ == 1) {
                    req_->stats.t_first_us = c.t_us;
                }
                send(c);
                break;
            case chunk_msg::kind::logprob:
                if (c.token >= lines_->n_vocab) { // nobody here can tell its text
                    c.token = no_token;
                }
                send(c);
                break;
            case chunk_msg::kind::end:
                end(c.finish,
                    c.finish == finish_reason::error ? failure{.sentence = "the target failed on the verify host"}
                                                     : failure{},
                    c.n_drop);
                return;
        }
    }
    if (n_alternatives_ < now_.n_logprobs) {
        refuse_host("a token without its log-probabilities");
    }
    wires_->chunks.wake();
}

text_params target_link::restart() {
    const std::lock_guard locked(wires_->link_mutex);
    if (!running() || wires_->requests_freed) {
        return now_;
    }
    now_.id = request_node((++n_restarts_ & 0x3fffff) << 40 | (req_->id & 0xffffffffff));
    begin_draft();
    return now_;
}

void target_link::add_stats(const verify_stats & part) {
    if (running()) {
        add_part(req_->stats, part);
    }
}

void target_link::fail(const failure & why) {
    end(finish_reason::error, why, 0);
}

void target_link::stopped() {
    end(finish_reason::cancelled, {}, 0);
}

// Waits while the ring is full.
void target_link::send(const chunk_msg & c) {
    const std::lock_guard alone(lines_->chunks_mutex);
    wires_->chunks.push_quiet(c);
}

void target_link::end(finish_reason why, const failure & error, int32_t n_drop) {
    {
        const std::lock_guard locked(wires_->link_mutex);
        if (!running()) {
            return;
        }
        tell_draft({.what = verdict_msg::kind::end});
        if (!wires_->requests_freed) {
            req_->error             = error;
            req_->stats.n_predicted = n_predicted_;
            req_->stats.t_end_us    = now_us();
            count_draft();
        }
        drafted_.reset();
        req_ = nullptr;
        running_.store(false, std::memory_order_release);
    }
    send({.what = chunk_msg::kind::end, .finish = why, .slot = slot_, .n_drop = n_drop, .t_us = now_us()});
    wires_->chunks.wake();
    wires_->verify_bell.ring(); // the sender need not wait for more nodes
}

} // namespace duo
