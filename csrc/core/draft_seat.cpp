#include "draft_seat.h"

#include <algorithm>
#include <chrono>

#include "../error.h"
#include "listen_loop.h"
#include "message_check.h"
#include "same.h"

namespace duo {

draft_seat::draft_seat(token_model & model, const std::function<void()> & on_thread)
    : wires_(true), worker_(model, wires_), thread_([this, on_thread] {
          if (on_thread) {
              on_thread();
          }
          worker_.run();
      }) {
}

draft_seat::~draft_seat() {
    close();
}

int32_t draft_seat::n_cached(std::span<const token_id> prompt) const {
    return n_same(prompt, last_);
}

void draft_seat::begin(text_params text) {
    check_text(text);
    if (text_ != nullptr || closed()) {
        throw error(error_kind::busy, "this draft works on another text; end it first");
    }
    wires_.nodes.drop_all(); // of a text that has ended
    n_verdicts_                        = 0;
    last_                              = text.prompt;
    text_                              = std::make_unique<request>();
    static_cast<text_params &>(*text_) = std::move(text);
    text_->set_grammar_start();
    text_->draft_done.store(false, std::memory_order_relaxed);
    // Its orders are the next message.
    if (!wires_.verdicts.try_push({.what = verdict_msg::kind::begin, .n_ahead = 1, .req = text_.get()})) {
        text_.reset();
        throw error(error_kind::busy, "this draft is too far behind; try another time");
    }
}

void draft_seat::give(std::span<const verdict_msg> verdicts) {
    if (text_ == nullptr) {
        throw error(error_kind::peer_lost,
                    "the other side sent verdicts of no text; use the same version of duo on both sides");
    }
    for (const verdict_msg & v : verdicts) {
        check_verdict(v);
    }
    // Each verdict adds one token. Accepted nodes need no check, as the draft has computed them itself.
    n_verdicts_ += verdicts.size();
    if (text_->prompt.size() + n_verdicts_ > n_text_most) {
        throw error(error_kind::bad_value, "the other side sent a text that never ends; give it a limit (-n)");
    }
    for (const verdict_msg & v : verdicts) {
        if (v.what != verdict_msg::kind::end && !wires_.verdicts.try_push(v)) {
            throw error(error_kind::busy, "the draft fell too far behind");
        }
    }
}

bool draft_seat::take(std::vector<node_msg> & out, int64_t deadline_us) {
    return listen_until(
        wires_.verify_bell, deadline_us, [this] { return closed(); },
        [&] { return done_if(wires_.nodes.take_all(out)); });
}

bool draft_seat::end(int64_t deadline_us) {
    if (text_ == nullptr) {
        return true;
    }
    text_->cancelled.store(true, std::memory_order_relaxed); // a draft that reads a long prompt stops soon
    wires_.verdicts.try_push({.what = verdict_msg::kind::end});
    while (!text_->draft_done.load(std::memory_order_acquire)) {
        wires_.nodes.drop_all(); // the worker must not wait for room
        if (now_us() > deadline_us) {
            return false;
        }
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    text_.reset();
    return true;
}

void draft_seat::close() noexcept {
    if (text_ != nullptr) {
        text_->cancelled.store(true, std::memory_order_relaxed);
    }
    wires_.verdicts.close();
    wires_.nodes.close();
    if (thread_.joinable()) {
        thread_.join();
    }
    text_.reset();
}

} // namespace duo
