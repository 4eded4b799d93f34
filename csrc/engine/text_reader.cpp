#include "text_reader.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/on_leaving.h"
#include "rings/listen_loop.h"

namespace duo {

text_reader::text_reader(const token_model & model, wires & w, int32_t n_texts)
    : model_(model), wires_(w), slots_(size_t(n_texts)) {
}

std::shared_ptr<open_text> text_reader::begin(std::unique_ptr<request> req, int32_t slot) {
    auto                  text = std::make_shared<open_text>(std::move(req), model_);
    texts                 done; // freed after the lock
    const std::lock_guard locked(mutex_);
    if (closed_) {
        throw error(error_kind::cancelled, "this engine is closed; make a new one");
    }
    done = take_done();
    ended_.reserve(ended_.size() + slots_.size() + queue_.size() + 1); // end() and drop_queued() must not fail
    if (slot >= 0) {
        if (slots_[size_t(slot)] != nullptr) {
            throw error(error_kind::busy, "another text is being generated; wait for it or cancel it first");
        }
        start(text, size_t(slot));
        return text;
    }
    text->queued_ = true;
    queue_.push_back(text);
    start_queued();
    return text;
}

// Under the mutex, like all that follow. The ended texts that nobody needs; without memory for the list, none.
text_reader::texts text_reader::take_done() noexcept {
    texts done;
    try {
        done.reserve(ended_.size());
    } catch (...) {
        return done;
    }
    std::erase_if(ended_, [&done](auto & t) {
        const bool free = t->req().draft_done.load(std::memory_order_acquire);
        if (free) {
            done.push_back(std::move(t));
        }
        return free;
    });
    return done;
}

void text_reader::start_queued() {
    for (size_t i = 0; i < slots_.size() && !queue_.empty(); ++i) {
        if (slots_[i] == nullptr) {
            start(queue_.front(), i);
            queue_.pop_front();
        }
    }
}

void text_reader::start(const std::shared_ptr<open_text> & text, size_t slot) {
    text->queued_    = false;
    text->req_->slot = int32_t(slot);
    slots_[slot]     = text;
    wires_.requests.push(text->req_.get());
}

// The thread that reads may be another text's, so a text whose chunk cannot be kept is the only one that ends.
void text_reader::give(const chunk_msg & msg) noexcept {
    if (size_t(msg.slot) >= slots_.size() || slots_[size_t(msg.slot)] == nullptr) {
        return;
    }
    const std::shared_ptr<open_text> text = slots_[size_t(msg.slot)];
    try {
        text_chunk chunk;
        if (text->lost_.sentence.empty() && text->stream_.take(msg, chunk)) {
            text->chunks_.push_back(std::move(chunk));
            tell(*text);
        }
    } catch (...) {
        lose(*text, failure_caught());
    }
    if (msg.what == chunk_msg::kind::end) {
        end(*text);
        start_queued();
    }
}

void text_reader::lose(open_text & text, failure && why) noexcept {
    text.lost_ = std::move(why);
    text.req_->cancelled.store(true, std::memory_order_relaxed);
    wires_.verify_bell.ring();
}

void text_reader::tell(open_text & text) {
    ++n_news_;
    text.came_.notify_all();
    news_.notify_all();
}

void text_reader::end(open_text & text) {
    text.ended_ = true;
    if (!text.lost_.sentence.empty()) {
        text.req_->error = std::move(text.lost_);
        text.owed_       = finish_reason::error;
        tell(text);
    }
    ended_.push_back(std::exchange(slots_[size_t(text.req_->slot)], nullptr));
}

bool text_reader::next(open_text & text, text_chunk & out, int64_t deadline_us) {
    texts            done; // freed after the lock
    std::unique_lock locked(mutex_);
    for (;;) {
        if (text.has_chunk()) {
            text.give(out);
            if (out.finish != finish_reason::none) {
                done = take_done(); // what the text held, such as a saved cache, may be large
            }
            return true;
        }
        const int64_t left_us = deadline_us - now_us();
        if (text.ended_ || left_us <= 0 || wires_.chunks.closed()) {
            if (!reading_) {
                pass_on_reading(); // another thread has to see that the ring is closed
            }
            return false;
        }
        if (!reading_) {
            read_ring(deadline_us, locked, [&text] { return text.has_chunk(); });
            continue;
        }
        ++text.n_waiting_;
        // A day, because the clock's arithmetic would overflow otherwise.
        text.came_.wait_for(locked, std::chrono::microseconds(std::min<int64_t>(left_us, 86400000000)));
        --text.n_waiting_;
    }
}

uint64_t text_reader::wait_news(uint64_t seen, int64_t deadline_us) {
    std::unique_lock locked(mutex_);
    while (n_news_ == seen && !wires_.chunks.closed() && now_us() < deadline_us) {
        if (!reading_) {
            read_ring(deadline_us, locked, [this, seen] { return n_news_ != seen; });
            continue;
        }
        const int64_t left_us = deadline_us - now_us();
        waits_for_news_       = true;
        news_.wait_for(locked, std::chrono::microseconds(std::min<int64_t>(left_us, 86400000000)));
        waits_for_news_ = false;
    }
    if (!reading_) {
        pass_on_reading(); // the thread that read last may have passed it on to this one
    }
    return n_news_;
}

// Reads for all texts until the caller has what it waits for.
template <typename Done>
void text_reader::read_ring(int64_t deadline_us, std::unique_lock<std::mutex> & locked, Done && done) {
    reading_ = true;
    locked.unlock();
    const on_leaving ends([&] { // or others would wait for ever
        locked.lock();
        reading_ = false;
        pass_on_reading();
    });
    const auto       look = [&] {
        const std::lock_guard again(mutex_);
        for (chunk_msg msg; wires_.chunks.try_pop(msg);) {
            give(msg);
        }
        return done_if(done());
    };
    listen_until(wires_.reader_bell, deadline_us, [this] { return wires_.chunks.closed(); }, look);
}

// Wakes a thread that can read the ring. One whose text has a chunk will not read.
void text_reader::pass_on_reading() {
    if (waits_for_news_) {
        news_.notify_all();
        return;
    }
    const auto wake = [](const std::shared_ptr<open_text> & t) {
        if (t == nullptr || t->n_waiting_ == 0 || t->has_chunk()) {
            return false;
        }
        t->came_.notify_all();
        return true;
    };
    if (!std::any_of(slots_.begin(), slots_.end(), wake) && !std::any_of(queue_.begin(), queue_.end(), wake)) {
        idle_.notify_all();
    }
}

void text_reader::wait_until_idle() {
    std::unique_lock locked(mutex_);
    const auto       idle = [this] {
        return queue_.empty() && std::all_of(slots_.begin(), slots_.end(), [](const auto & t) { return t == nullptr; });
    };
    while (!idle() && !wires_.chunks.closed()) {
        if (!reading_) {
            read_ring(bell::forever, locked, idle);
        } else {
            idle_.wait_for(locked, std::chrono::milliseconds(10)); // its reader may be another text's
        }
    }
}

bool text_reader::next_raw(chunk_msg & out) {
    const std::lock_guard locked(mutex_);
    if (!wires_.chunks.try_pop(out)) {
        return false;
    }
    if (out.what == chunk_msg::kind::end && size_t(out.slot) < slots_.size() && slots_[size_t(out.slot)] != nullptr) {
        end(*slots_[size_t(out.slot)]);
        start_queued();
    }
    return true;
}

void text_reader::cancel(open_text & text) {
    const std::lock_guard locked(mutex_);
    text.req_->cancelled.store(true, std::memory_order_relaxed);
    if (text.queued_) {
        drop_queued();
    }
    wires_.verify_bell.ring();
}

// Ends the texts of the queue that were cancelled.
void text_reader::drop_queued() {
    std::erase_if(queue_, [this](const auto & t) {
        const bool drop = t->req().cancelled.load(std::memory_order_relaxed);
        if (drop) {
            t->queued_ = false;
            t->ended_  = true;
            t->owed_   = finish_reason::cancelled;
            ended_.push_back(t);
            tell(*t);
        }
        return drop;
    });
}

void text_reader::cancel_all() {
    const std::lock_guard locked(mutex_);
    for (const auto & t : queue_) {
        t->req().cancelled.store(true, std::memory_order_relaxed);
    }
    drop_queued();
    for (const auto & t : slots_) {
        if (t != nullptr) {
            t->req().cancelled.store(true, std::memory_order_relaxed);
        }
    }
    wires_.verify_bell.ring();
}

void text_reader::close() {
    {
        const std::lock_guard locked(mutex_);
        closed_ = true;
        for (const auto & t : ended_) {
            t->req().cancelled.store(true, std::memory_order_relaxed); // a draft that reads a long prompt stops soon
        }
    }
    cancel_all();
}

bool text_reader::ended(const open_text & text) const {
    const std::lock_guard locked(mutex_);
    return text.ended_ && !text.has_chunk();
}

size_t text_reader::n_open() const {
    const std::lock_guard locked(mutex_);
    return queue_.size() +
           size_t(std::count_if(slots_.begin(), slots_.end(), [](const auto & t) { return t != nullptr; }));
}

size_t text_reader::n_queued() const {
    const std::lock_guard locked(mutex_);
    return queue_.size();
}

size_t text_reader::n_unfreed() const {
    const std::lock_guard locked(mutex_);
    return size_t(std::count_if(ended_.begin(), ended_.end(),
                                [](const auto & t) { return !t->req().draft_done.load(std::memory_order_acquire); }));
}

} // namespace duo
