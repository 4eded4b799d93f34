#include "verify_seat.h"

#include <algorithm>

#include "../error.h"
#include "listen_loop.h"
#include "message_check.h"

namespace duo {

namespace {
constexpr size_t n_early_most = 1024;
} // namespace

verify_seat::verify_seat(token_model & model, std::function<void()> on_thread)
    : model_(model),
      pipeline_(&model, nullptr, {.remote_draft = true, .one_outside = true, .on_target_thread = std::move(on_thread)}),
      link_(pipeline_.ends(), model.n_vocab()) {
    link_.ready();
}

void verify_seat::begin(text_params text) {
    check_text(text);
    if (running()) {
        throw error(error_kind::busy, "another text is being generated; wait for it or cancel it first");
    }
    {
        const std::lock_guard locked(early_mutex_);
        begun_ = false;
        early_.clear();
    }
    auto r                         = std::make_unique<request>();
    static_cast<text_params &>(*r) = std::move(text);
    text_                          = pipeline_.begin(std::move(r));
    last_                          = text_->req().prompt;
    n_logprobs_                    = std::max(0, text_->req().n_logprobs);
    group_.clear();
}

void verify_seat::give(std::span<const node_msg> nodes) {
    {
        const std::lock_guard locked(early_mutex_);
        if (!begun_) {
            for (const node_msg & n : nodes) {
                check_node(n, model_.n_vocab());
            }
            // The worker is so late then that further guesses are of no use.
            const size_t n = std::min(nodes.size(), n_early_most - std::min(n_early_most, early_.size()));
            early_.insert(early_.end(), nodes.begin(), nodes.begin() + std::ptrdiff_t(n));
            return;
        }
    }
    link_.give(nodes);
}

// True if the target has asked for the draft. Then passes on the nodes that came before.
bool verify_seat::begun() {
    const std::lock_guard locked(early_mutex_);
    if (!begun_ && link_.wait_begin(0).has_value()) {
        begun_ = true;
        link_.give(early_);
        early_.clear();
    }
    return begun_;
}

bool verify_seat::take(std::vector<verdict_msg> & verdicts, std::vector<chunk_msg> & chunks, int64_t deadline_us) {
    const auto look = [&] {
        const size_t n = verdicts.size() + chunks.size();
        if (begun()) {
            link_.take(verdicts, 0);
        }
        take_chunks(chunks);
        return done_if(verdicts.size() + chunks.size() > n);
    };
    return listen_until(
        pipeline_.ends()->draft_bell, deadline_us, [this] { return !running() || link_.closed(); }, look);
}

void verify_seat::take_chunks(std::vector<chunk_msg> & out) {
    chunk_msg c;
    while (pipeline_.next_chunk(c)) {
        if (c.what == chunk_msg::kind::token) {
            last_.push_back(c.token);
        }
        group_.push_back(c);
        if (c.what == chunk_msg::kind::end || int32_t(group_.size()) > n_logprobs_) {
            out.insert(out.end(), group_.begin(), group_.end());
            group_.clear();
        }
    }
}

} // namespace duo
