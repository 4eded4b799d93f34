// What the next pass verifies: the tree as it is known now, the planner's choice, and the wait for the draft if that
// pays.
#include <algorithm>

#include "verify_worker.h"

namespace duo {

plan verify_worker::make_plan() {
    constexpr int32_t n_waits_most   = 16 * n_draft_cap; // news that change nothing must not hold up the text for ever
    constexpr int64_t reading_factor = 4;
    int64_t           t0             = 0;
    plan              p;
    for (int32_t i = 0;; ++i) {
        const uint32_t heard = wires_.verify_bell.listen();
        take_nodes();
        if (contact_ == contact::returned) {
            begin_draft_in_mid_text();
        }
        begin_draft_if_it_pays();
        grow_tree();
        // With prompt rows still to be evaluated there is better to do than to wait; turn-taking waits even so when all
        // of the prompt was cached.
        const int32_t n_new   = n_text() - int32_t(cached_.size());
        const bool    begun   = req_->stats.n_passes > 0 || (req_->plan.mode == run_mode::sync && n_new == 1);
        const bool    growing = draft_may_grow() && begun && !cancelled() && i < n_waits_most;
        planner_.set_away_us(wires_.rtt_us.load(std::memory_order_relaxed));
        p = planner_.next(tree_, n_room(), growing, !was_hit_, n_new);
        if (p.wait_us <= 0) {
            break;
        }
        const int64_t now = now_us();
        t0                = t0 == 0 ? now : t0;
        // Side by side on the same cores both would take longer: a draft that reads is waited for.
        const int64_t wait_us =
            contact_ == contact::reading ? std::max(p.wait_us, reading_factor * reading_us()) : p.wait_us;
        if (!wires_.verify_bell.wait(heard, now + wait_us)) {
            contact_ = contact::late; // a draft that hangs costs one wait, not one for each token
        }
    }
    if (t0 != 0) {
        const int64_t t1 = now_us();
        req_->stats.wait_us += t1 - t0;
        t_elsewhere_ += t1 - t0;
        if (wires_.tracing) {
            wires_.verify_trace.try_push(
                {.what = trace_event::kind::wait, .slot = req_->slot, .t0_us = t0, .t1_us = t1});
        }
    }
    return p;
}

void verify_worker::take_nodes() {
    node_msg msg;
    while (wires_.nodes.try_pop(msg)) {
        const bool ours = req_ != nullptr && drafting() && msg.slot == req_->slot;
        contact_        = ours && contact_ == contact::late ? contact::at_work : contact_;
        switch (msg.what) {
            case node_msg::kind::ready:
            case node_msg::kind::lost:
                on_link(msg.what == node_msg::kind::ready);
                break;
            case node_msg::kind::node:
                if (ours) {
                    on_node(msg);
                }
                break;
            case node_msg::kind::pause:
                if (ours) {
                    mirror_.pause(msg.parent);
                }
                break;
            case node_msg::kind::failed:
                if (ours && msg.id == told_->id) {
                    contact_      = contact::none;
                    req_->warning = (told_->draft_error.empty() ? std::string("the draft failed")
                                                                : "the draft stopped: " + told_->draft_error) +
                                    "; the text went on without it";
                }
                break;
        }
    }
}

void verify_worker::on_node(const node_msg & msg) {
    const bool elsewhere = draft_ == draft_place::elsewhere;
    planner_.profile().on_step(msg.n_rows, msg.step_us, elsewhere ? planner_.draft_works() : msg.beside);
    if (elsewhere) {
        req_->draft->count(msg.step_us > 0.0f ? 1 : 0, 1, int64_t(msg.step_us), 0);
    }
    const auto what  = mirror_.insert(msg, text_);
    const bool right = what == mirror_tree::news::named_right;
    contact_         = what != mirror_tree::news::stale ? contact::at_work : contact_;
    n_draft_read_    = what == mirror_tree::news::grown ? n_text() : n_draft_read_; // it has come as far as the root
    // A guess that came too late to be verified is known to be right or wrong all the same.
    if (msg.guess && (right || what == mirror_tree::news::guess_wrong)) {
        planner_.profile().guesses().on_child(msg.logp, right);
        if (msg.rank == 0) {
            planner_.profile().guesses().on_guess(0, right, true);
        }
    }
}

void verify_worker::grow_tree() {
    const double least = planner_.least_chance();
    n_proposals_       = 0;
    if (!planner_.shape().empty()) {
        planner_.shape().match(mirror_.tree(), places_);
        tree_.begin(mirror_.tree(), planner_.profile(), planner_.shape(), places_);
        return;
    }
    tree_.begin(mirror_.tree(), planner_.profile(), least);
    if (req_->plan.ngram.kind == ngram_kind::none || req_->plan.mode == run_mode::plain) {
        return;
    }
    const int32_t n_most = std::min(n_room(), n_draft_cap);
    n_proposals_         = ngrams_.propose(text_, {}, n_most, proposals_);
    int32_t n_hits       = 0;
    for (size_t i = 0; i < n_proposals_; ++i) {
        n_hits += proposals_[i].n_hits;
    }
    for (size_t i = 0; i < n_proposals_; ++i) {
        const double share = double(proposals_[i].n_hits) / std::max(1, n_hits);
        tree_.add_ngram(-1, proposals_[i].tokens, planner_.profile(), least, share);
    }
    // And where the best path ends: a draft that has entered a passage of the text need not go on itself.
    const auto & path = tree_.best_path();
    if (!path.empty() && int32_t(path.size()) < n_most) {
        tail_.clear();
        for (const int32_t i : path) {
            tail_.push_back(tree_.nodes()[size_t(i)].token);
        }
        if (ngrams_.propose(text_, tail_, n_most - int32_t(path.size()), std::span(&proposal_below_, 1)) == 1) {
            tree_.add_ngram(path.back(), proposal_below_.tokens, planner_.profile(), least);
        }
    }
}

} // namespace duo
