#include "verify_host.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/same.h"
#include "message_check.h"
#include "rings/listen_loop.h"

namespace duo {

namespace {
constexpr size_t n_early_most = 1024;
constexpr size_t n_untaken    = size_t(1) << 18; // chunks that a client has not taken, before its text ends
} // namespace

verify_host::verify_host(token_model & model, int32_t n_places, std::function<void()> on_thread)
    : model_(model),
      pipeline_(&model, nullptr,
                {.remote_draft = true, .on_host = true, .n_texts = n_places, .on_target_thread = std::move(on_thread)}),
      ends_(pipeline_.ends()), lines_(std::make_shared<draft_lines>(ends_, n_places, model.facts().n_vocab)),
      places_(size_t(n_places)), nodes_(ends_->nodes, n_places, wires::n_nodes_each - 1) {
    for (int32_t i = 0; i < n_places; ++i) {
        places_[size_t(i)].link = std::make_unique<draft_link>(lines_, i);
        places_[size_t(i)].link->ready();
    }
}

int32_t verify_host::n_cached(int32_t i, std::span<const token_id> prompt) const {
    const std::lock_guard locked(mutex_);
    return n_same(prompt, places_[size_t(i)].last);
}

// Under the mutex, like all that are private.
bool verify_host::runs(int32_t i) const {
    const place & p = places_[size_t(i)];
    return p.text != nullptr && !closed() && (!p.chunks.empty() || !pipeline_.ended(*p.text));
}

bool verify_host::running(int32_t i) const {
    const std::lock_guard locked(mutex_);
    return runs(i);
}

std::shared_ptr<const open_text> verify_host::current(int32_t i) const {
    const std::lock_guard locked(mutex_);
    return places_[size_t(i)].text;
}

void verify_host::begin(int32_t i, text_params text) {
    check_text(text);
    const std::lock_guard locked(mutex_);
    place &               p = places_[size_t(i)];
    if (runs(i)) {
        throw error(error_kind::busy, "another text is being generated; wait for it or cancel it first");
    }
    auto r                         = std::make_unique<request>();
    static_cast<text_params &>(*r) = std::move(text);
    p.text                         = pipeline_.begin(std::move(r), i);
    p.last                         = p.text->req().prompt;
    p.n_logprobs                   = std::max(0, p.text->req().n_logprobs);
    p.dropped                      = false;
    p.asked                        = false;
    p.begun                        = false;
    p.chunks.clear();
    p.group.clear();
    p.early.clear();
}

// Sends them in their order, as far as there is room. False: some are left.
bool verify_host::push(int32_t i, std::span<const node_msg> & nodes) {
    while (!nodes.empty() && nodes_.try_push(i, nodes.front())) {
        nodes = nodes.subspan(1);
    }
    return nodes.empty();
}

void verify_host::give(int32_t i, std::span<const node_msg> nodes) {
    for (const node_msg & n : nodes) {
        check_node(n, model_.facts().n_vocab);
    }
    for (;;) {
        {
            const std::lock_guard locked(mutex_);
            place &               p = places_[size_t(i)];
            if (!p.begun) {
                // The worker is so late then that further guesses are of no use.
                const size_t n = std::min(nodes.size(), n_early_most - std::min(n_early_most, p.early.size()));
                p.early.insert(p.early.end(), nodes.begin(), nodes.begin() + std::ptrdiff_t(n));
                return;
            }
            if (!runs(i) || push(i, nodes)) {
                return;
            }
        }
        std::this_thread::sleep_for(std::chrono::microseconds(500)); // for less than a pass, as a rule
    }
}

// True if the target has asked for the draft. Then passes on the nodes that came before.
bool verify_host::asked(int32_t i) {
    place & p = places_[size_t(i)];
    p.asked   = p.asked || p.link->wait_begin(0).has_value();
    if (p.asked && !p.begun) {
        std::span<const node_msg> left(p.early);
        p.begun = push(i, left);
        p.early = std::vector<node_msg>(left.begin(), left.end());
    }
    return p.asked;
}

// Hands all chunks to their places.
void verify_host::sort_chunks() {
    for (chunk_msg c; pipeline_.next_chunk(c);) {
        place & p = places_[size_t(c.slot)];
        if (p.chunks.size() >= n_untaken && !p.dropped) {
            p.dropped = true;
            pipeline_.ask_to_end(*p.text);
        }
        if (!p.dropped || c.what == chunk_msg::kind::end) {
            p.chunks.push_back(c);
        }
    }
}

bool verify_host::take(int32_t i, std::vector<verdict_msg> & verdicts, std::vector<chunk_msg> & chunks,
                       int64_t deadline_us) {
    const auto look = [&] {
        const std::lock_guard locked(mutex_);
        place &               p = places_[size_t(i)];
        const size_t          n = verdicts.size() + chunks.size();
        sort_chunks();
        if (p.dropped) {
            throw error(error_kind::busy, "the client takes too little of the text");
        }
        if (asked(i)) {
            p.link->take(verdicts, 0);
        }
        take_chunks(i, chunks);
        return done_if(verdicts.size() + chunks.size() > n);
    };
    return listen_until(ends_->draft_bell, deadline_us, [this, i] { return !running(i); }, look);
}

void verify_host::take_chunks(int32_t i, std::vector<chunk_msg> & out) {
    place & p = places_[size_t(i)];
    for (; !p.chunks.empty(); p.chunks.pop_front()) {
        const chunk_msg c = p.chunks.front();
        if (c.what == chunk_msg::kind::token) {
            p.last.push_back(c.token);
        }
        p.group.push_back(c);
        if (c.what == chunk_msg::kind::end || int32_t(p.group.size()) > p.n_logprobs) {
            out.insert(out.end(), p.group.begin(), p.group.end());
            p.group.clear();
        }
    }
}

void verify_host::cancel(int32_t i) noexcept {
    {
        const std::lock_guard locked(mutex_);
        if (!runs(i)) {
            return;
        }
        pipeline_.ask_to_end(*places_[size_t(i)].text);
    }
    const auto look = [&] {
        const std::lock_guard locked(mutex_);
        sort_chunks();
        places_[size_t(i)].chunks.clear();
        return done_if(!runs(i));
    };
    listen_until(ends_->draft_bell, bell::forever, [this] { return closed(); }, look);
}

void verify_host::rtt(int32_t i, int64_t us) {
    places_[size_t(i)].link->rtt(us);
}

} // namespace duo
