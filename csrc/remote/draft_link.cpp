#include "draft_link.h"

#include "message_check.h"
#include "rings/listen_loop.h"

namespace duo {

draft_link::~draft_link() {
    const std::lock_guard locked(wires_->link_mutex);
    let_go();
}

void draft_link::let_go() {
    if (held_ != nullptr && !wires_->requests_freed) {
        held_->draft_done.store(true, std::memory_order_release);
    }
    held_ = nullptr;
}

bool draft_link::pop(verdict_msg & v) {
    if (wires_->requests_freed) { // the request that a begin points to is gone too
        next_.reset();
        return false;
    }
    if (next_.has_value()) {
        v = *next_;
        next_.reset();
        return true;
    }
    lines_->verdicts.sort();
    return lines_->verdicts.pop(slot_, v);
}

std::optional<text_params> draft_link::wait_begin(int64_t deadline_us) {
    std::optional<text_params> text;
    const auto                 look = [&] {
        const std::lock_guard locked(wires_->link_mutex);
        for (verdict_msg v; pop(v);) {
            if (v.what == verdict_msg::kind::end) {
                let_go();
            }
            if (v.what == verdict_msg::kind::begin) {
                let_go();
                held_  = v.req;
                v.what = verdict_msg::kind::orders;
                v.req  = nullptr;
                next_  = v;
                text   = *held_;
                return found::done;
            }
        }
        return found::nothing;
    };
    listen_until(wires_->draft_bell, deadline_us, [this] { return closed(); }, look);
    return text;
}

bool draft_link::take(std::vector<verdict_msg> & out, int64_t deadline_us) {
    const auto look = [&] {
        const std::lock_guard locked(wires_->link_mutex);
        const size_t          n = out.size();
        for (verdict_msg v; pop(v);) {
            if (v.what == verdict_msg::kind::begin) {
                next_  = v; // the `end` of the text before it was not seen
                v.what = verdict_msg::kind::end;
                v.req  = nullptr;
            }
            out.push_back(v);
            if (v.what == verdict_msg::kind::end) {
                let_go();
                break;
            }
        }
        return done_if(out.size() > n);
    };
    return listen_until(wires_->draft_bell, deadline_us, [this] { return closed(); }, look);
}

void draft_link::send(node_msg::kind what) {
    const std::lock_guard alone(lines_->nodes_mutex);
    wires_->nodes.push({.what = what, .slot = slot_});
}

void draft_link::ready() {
    send(node_msg::kind::ready);
}

void draft_link::lost() {
    send(node_msg::kind::lost);
}

void draft_link::give(std::span<const node_msg> nodes) {
    for (const node_msg & n : nodes) {
        check_node(n, lines_->n_vocab);
    }
    const std::lock_guard alone(lines_->nodes_mutex);
    for (node_msg n : nodes) {
        n.slot = slot_;
        wires_->nodes.push_quiet(n);
    }
    wires_->nodes.wake();
}

} // namespace duo
