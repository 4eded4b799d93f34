// The target's messages to its draft, and the draft's to the target. The loop around it is in verify_worker.cpp.
#include <algorithm>

#include "verify_worker.h"

namespace duo {

namespace {
constexpr uint32_t n_quiet_most = 256; // verdicts before a draft at rest is woken to take them
constexpr int32_t  n_hoped      = 256; // length that is assumed for a text without a limit, in tokens
} // namespace

bool verify_worker::draft_wanted(const request & req) const {
    return draft_ != draft_place::none && req.plan.has_model && req.plan.mode != run_mode::plain &&
           req.plan.n_max != 0 && req.n_predict != 0;
}

// The draft starts on its prompt while the target evaluates its own.
void verify_worker::begin_draft(const request & req) {
    text_.set_draft_request(req);
    if (end_owed_) {
        end_owed_ = !wires_.verdicts.try_push({.what = verdict_msg::kind::end, .slot = req.slot});
    }
    if (end_owed_) {
        return;
    }
    req.draft_done.store(false, std::memory_order_relaxed);
    text_.set_contact(contact::at_work);
    tell_draft({.what = verdict_msg::kind::begin, .slot = req.slot, .req = &req});
    if (!text_.drafting()) {
        req.draft_done.store(true, std::memory_order_relaxed);
    }
}

// A draft that begins in mid-text, or again, begins with the text as it is now.
void verify_worker::begin_draft_in_mid_text() {
    text_.set_contact(contact::none);
    constexpr uint64_t n_most      = uint64_t(1) << 22; // such ids are larger than those of the engine's requests
    const request &    req         = text_.req();
    auto               r           = std::make_unique<request>();
    static_cast<text_params &>(*r) = req;
    r->prompt                      = text_.tokens();
    r->slot                        = req.slot;
    r->draft                       = req.draft;
    r->id                          = request_node((++n_late_begins_ % n_most + 1) << 40 | (req.id & 0xffffffffff));
    text_.restart_tree(r->id);
    forget_late_begins();
    late_begins_.push_back(std::move(r));
    begin_draft(*late_begins_.back());
}

void verify_worker::forget_late_begins() {
    std::erase_if(late_begins_, [](const auto & r) { return r->draft_done.load(std::memory_order_acquire); });
}

// On shared cores the target writes the first token alone. The draft reads the text when that is worth its time.
void verify_worker::begin_draft_if_it_pays() {
    const verify_stats & st = text_.stats();
    if (text_.draft_contact() != contact::owed || st.n_passes == 0 || planner_.stance_now() == stance::rest) {
        return;
    }
    const int64_t elapsed   = now_us() - st.t_begin_us;
    const int32_t n_predict = text_.req().n_predict;
    const int32_t n_left    = n_predict < 0 ? std::max(n_hoped, st.n_predicted) : n_predict - st.n_predicted;
    if (planner_.draft_pays(reading_us(), n_left, elapsed)) {
        begin_draft_in_mid_text();
        if (text_.drafting()) {
            text_.set_contact(contact::reading);
        }
    }
}

// How long the draft will read: as long as the target would, less what its smaller size and its cache save.
int64_t verify_worker::reading_us() const {
    const pair_profile & p    = planner_.profile();
    const double         pass = p.pass_us(1, false);
    const double         c    = pass > 0.0 ? std::min(1.0, p.step_us(1, false) / pass) : 1.0;
    return int64_t(c * row_us_ * (text_.n_tokens() - text_.n_draft_read()));
}

void verify_worker::tell_draft(verdict_msg v) {
    // With turn-taking, a guess that the pass has no room for would only delay the pass.
    const int32_t n_most = planner_.stance_now() == stance::by_turn ? std::max(0, n_room()) : n_draft_cap;
    v.n_ahead            = int16_t(std::min<int32_t>(planner_.n_ahead(), n_most));
    v.n_branch           = planner_.n_branch();
    v.n_want             = planner_.n_want();
    v.branch_price       = planner_.branch_price();
    v.least_path         = planner_.least_path();
    v.n_threads          = int16_t(planner_.threads().draft);
    // A draft that rests need not be woken for each token. A draft that is thousands of verdicts behind is of no use to
    // this text, and waiting for it would be worse.
    const bool rest = v.what == verdict_msg::kind::verdict && v.n_ahead == 0 && !planner_.measuring() &&
                      ++n_quiet_ % n_quiet_most != 0;
    if (text_.drafting() && !(rest ? wires_.verdicts.try_push_quiet(v) : wires_.verdicts.try_push(v))) {
        text_.lose_draft("the draft fell too far behind; the text went on without it");
    }
}

// The connection to a remote draft was made or lost.
void verify_worker::on_link(bool up) {
    reachable_ = up;
    if (!text_.active()) {
        return;
    }
    if (!up && text_.drafting()) {
        text_.lose_draft("the draft's host was lost; the text went on without it until it came back");
    } else if (!up && text_.draft_contact() == contact::returned) {
        text_.set_contact(contact::none);
    } else if (up && text_.draft_contact() == contact::none && draft_wanted(text_.req())) {
        text_.set_contact(contact::returned);
    }
}

void verify_worker::take_nodes() {
    node_msg msg;
    while (wires_.nodes.try_pop(msg)) {
        const bool ours = text_.drafting() && msg.slot == text_.req().slot;
        if (ours) {
            text_.on_message();
        }
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
                    text_.on_pause(msg.parent);
                }
                break;
            case node_msg::kind::done:
                break;
            case node_msg::kind::failed:
                if (ours && msg.id == text_.draft_request()->id) {
                    const std::string & why = text_.draft_request()->draft_error;
                    text_.lose_draft((why.empty() ? "the draft failed" : "the draft stopped: " + why) +
                                     "; the text went on without it");
                }
                break;
        }
    }
}

void verify_worker::on_node(const node_msg & msg) {
    const bool elsewhere = draft_ == draft_place::elsewhere;
    planner_.profile().on_step(msg.n_rows, msg.step_us, elsewhere ? planner_.draft_works() : msg.beside);
    if (elsewhere) {
        text_.req().draft->count(msg.step_us > 0.0f ? 1 : 0, 1, int64_t(msg.step_us), 0);
    }
    text_.on_node(msg, planner_.profile().guesses());
}

} // namespace duo
