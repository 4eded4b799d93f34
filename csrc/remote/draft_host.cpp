#include "draft_host.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/same.h"
#include "message_check.h"
#include "rings/listen_loop.h"

namespace duo {

namespace {
constexpr size_t n_dropped = 16384; // nodes that a client has not taken, before its text ends
} // namespace

draft_host::draft_host(token_model & model, int32_t n_places, const std::function<void()> & on_thread)
    : wires_(n_places, true), worker_(model, wires_, n_places), places_(size_t(n_places)), nodes_(wires_, n_places),
      verdicts_(wires_.verdicts, n_places, wires::n_verdicts_each - 1), thread_([this, on_thread] {
          if (on_thread) {
              on_thread();
          }
          worker_.run();
      }) {
}

draft_host::~draft_host() {
    close();
}

int32_t draft_host::n_cached(int32_t i, std::span<const token_id> prompt) const {
    const std::lock_guard locked(mutex_);
    return n_same(prompt, places_[size_t(i)].last);
}

bool draft_host::taken(int32_t i) const {
    const std::lock_guard locked(mutex_);
    return places_[size_t(i)].text != nullptr;
}

void draft_host::begin(int32_t i, text_params text) {
    check_text(text);
    const std::lock_guard locked(mutex_);
    place &               p = places_[size_t(i)];
    if (p.text != nullptr || closed()) {
        throw error(error_kind::busy, "this draft works on another text; end it first");
    }
    p.n_verdicts                        = 0;
    p.end_told                          = false;
    p.dropped                           = false;
    p.last                              = text.prompt;
    p.text                              = std::make_unique<request>();
    static_cast<text_params &>(*p.text) = std::move(text);
    p.text->slot                        = i;
    p.text->set_grammar_start();
    p.text->draft_done.store(false, std::memory_order_relaxed);
    // Its orders are the next message.
    if (!verdicts_.try_push(i, {.what = verdict_msg::kind::begin, .n_ahead = 1, .req = p.text.get()})) {
        p.text.reset();
        throw error(error_kind::busy, "this draft is too far behind; try another time");
    }
}

void draft_host::give(int32_t i, std::span<const verdict_msg> verdicts) {
    const std::lock_guard locked(mutex_);
    place &               p = places_[size_t(i)];
    if (p.text == nullptr) {
        throw error(error_kind::peer_lost,
                    "the other side sent verdicts of no text; use the same version of duo on both sides");
    }
    for (const verdict_msg & v : verdicts) {
        check_verdict(v);
    }
    // Each verdict adds one token. Accepted nodes need no check, as the draft has computed them itself.
    p.n_verdicts += verdicts.size();
    if (p.text->prompt.size() + p.n_verdicts > n_text_most) {
        throw error(error_kind::bad_value, "the other side sent a text that never ends; give it a limit (-n)");
    }
    for (const verdict_msg & v : verdicts) {
        if (v.what != verdict_msg::kind::end && !verdicts_.try_push(i, v)) {
            throw error(error_kind::busy, "the draft fell too far behind");
        }
    }
}

// Under the mutex. Hands all nodes to their places. Even a draft that is held gives one for each verdict.
void draft_host::sort_nodes() {
    nodes_.sort();
    for (int32_t i = 0; i < n_places(); ++i) {
        place & p = places_[size_t(i)];
        if (p.text != nullptr && nodes_.n_waiting(i) >= n_dropped) {
            p.dropped = true;
            p.text->cancelled.store(true, std::memory_order_relaxed);
            nodes_.drop(i);
        }
    }
}

bool draft_host::take(int32_t i, std::vector<node_msg> & out, int64_t deadline_us) {
    const auto look = [&] {
        const std::lock_guard locked(mutex_);
        sort_nodes();
        if (places_[size_t(i)].dropped) {
            throw error(error_kind::busy, "the client takes too few of the draft's guesses");
        }
        return done_if(nodes_.take_all(i, out));
    };
    return listen_until(wires_.verify_bell, deadline_us, [this] { return closed(); }, look);
}

// Under the mutex. The worker has let go of the place's text, so all its nodes are in the ring.
void draft_host::forget(int32_t i) {
    sort_nodes();
    nodes_.drop(i);
    places_[size_t(i)].text.reset();
}

bool draft_host::end(int32_t i, int64_t deadline_us) {
    place & p = places_[size_t(i)]; // nobody else changes its text now
    for (;;) {
        {
            const std::lock_guard locked(mutex_);
            if (p.text == nullptr) {
                return true;
            }
            p.text->cancelled.store(true, std::memory_order_relaxed); // a draft that reads a long prompt stops soon
            p.end_told = p.end_told || verdicts_.try_push(i, {.what = verdict_msg::kind::end}, true);
            sort_nodes(); // the worker must not wait for room
            if (p.text->draft_done.load(std::memory_order_acquire)) {
                forget(i);
                return true;
            }
        }
        if (now_us() > deadline_us) {
            return false;
        }
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
}

void draft_host::close() noexcept {
    {
        const std::lock_guard locked(mutex_);
        for (const place & p : places_) {
            if (p.text != nullptr) {
                p.text->cancelled.store(true, std::memory_order_relaxed);
            }
        }
        wires_.verdicts.close();
        wires_.nodes.close();
    }
    if (thread_.joinable()) {
        thread_.join();
    }
    const std::lock_guard locked(mutex_);
    for (place & p : places_) {
        p.text.reset();
    }
}

} // namespace duo
