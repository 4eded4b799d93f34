// The target's messages to its draft, and the draft's to the target. The loop around it is in verify_worker.cpp.
#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "verify_worker.h"

namespace duo {

namespace {
constexpr uint32_t n_quiet_most = 256; // verdicts before a draft at rest is woken to take them
constexpr int32_t  n_hoped      = 256; // length that is assumed for a text without a limit, in tokens
constexpr int32_t  n_row_pass   = 16;  // a prompt's row costs what it does in such a pass, if nothing is measured

// A draft that reads the last n tokens of a prompt, and how much it then saves of what one saves that reads all
// (benchmarks/README.md, "A window for the draft's prompt").
struct window_worth {
    int32_t n;
    double  share;
};
constexpr std::array<window_worth, 6> windows{
    {{64, 0.31}, {128, 0.33}, {256, 0.37}, {512, 0.63}, {1024, 0.85}, {n_window_all, 1.0}}};
} // namespace

bool verify_worker::draft_wanted(const request & req) const {
    return draft_ != draft_place::none && req.plan.has_model && req.plan.mode != run_mode::plain &&
           req.plan.n_max != 0 && req.n_predict != 0;
}

// The draft starts on its prompt while the target evaluates its own.
void verify_worker::begin_draft(verify_slot & s, const request & req) {
    s.text.set_draft_request(req);
    s.window = reading_of(s, req.plan.n_window).window;
    if (s.end_owed >= 0 && wires_.verdicts.try_push({.what = verdict_msg::kind::end, .slot = s.end_owed})) {
        s.end_owed = -1;
    }
    if (s.end_owed >= 0) {
        return;
    }
    req.draft_done.store(false, std::memory_order_relaxed);
    s.text.set_contact(contact::at_work);
    tell_draft(s, {.what = verdict_msg::kind::begin, .req = &req});
    if (!s.text.drafting()) {
        req.draft_done.store(true, std::memory_order_relaxed);
    }
}

// A draft that begins in mid-text, or again, begins with the text as it is now. n_window: if the request leaves the
// choice.
void verify_worker::begin_draft_in_mid_text(verify_slot & s, int32_t n_window) {
    s.text.set_contact(contact::none);
    constexpr uint64_t n_most      = uint64_t(1) << 22; // such ids are larger than those of the engine's requests
    const request &    req         = s.text.req();
    auto               r           = std::make_unique<request>();
    static_cast<text_params &>(*r) = req;
    r->prompt                      = s.text.tokens();
    r->slot                        = req.slot;
    r->draft                       = req.draft;
    r->plan.n_window               = req.plan.n_window == n_window_auto ? n_window : req.plan.n_window;
    r->id                          = request_node((++n_late_begins_ % n_most + 1) << 40 | (req.id & 0xffffffffff));
    s.text.restart_tree(r->id);
    late_begins_.push_back(std::move(r));
    begin_draft(s, *late_begins_.back());
    forget_late_begins();
}

// Frees the requests that neither the draft nor a text needs.
void verify_worker::forget_late_begins() {
    std::erase_if(late_begins_, [this](const auto & r) {
        return r->draft_done.load(std::memory_order_acquire) &&
               std::none_of(slots_.begin(), slots_.end(),
                            [&r](const verify_slot & s) { return s.text.draft_request() == r.get(); });
    });
}

void verify_worker::end_draft(verify_slot & s) {
    const request * told = s.text.draft_request();
    wires_.useless[size_t(line_of(s))].store(told != nullptr, std::memory_order_relaxed);
    if (told != nullptr && !told->draft_done.load(std::memory_order_acquire) &&
        !wires_.verdicts.try_push({.what = verdict_msg::kind::end, .slot = line_of(s)})) {
        s.end_owed = line_of(s);
    }
}

// On shared cores the target writes the first token alone. The draft reads the text when that is worth its time.
void verify_worker::begin_draft_if_it_pays(verify_slot & s) {
    const verify_stats & st = s.text.stats();
    if (s.text.draft_contact() != contact::owed || st.n_passes == 0 || planner_.stance_now() == stance::rest) {
        return;
    }
    const int64_t elapsed   = now_us() - st.t_begin_us;
    const int32_t n_predict = s.text.req().n_predict;
    const int32_t n_left    = n_predict < 0 ? std::max(n_hoped, st.n_predicted) : n_predict - st.n_predicted;
    const int32_t n_window  = best_window(s, n_left, elapsed);
    s.reading_us            = reading_us(reading_of(s, n_window));
    if (planner_.draft_pays(s.reading_us, n_left, elapsed)) {
        begin_draft_in_mid_text(s, n_window);
        if (s.text.drafting()) {
            s.text.set_contact(contact::reading);
        }
    }
}

// The last tokens that the draft is to read: more of them are worth their time while they save more than they take. If
// none does, the most that can be tried.
int32_t verify_worker::best_window(const verify_slot & s, int32_t n_left, int64_t elapsed_us) const {
    const int32_t asked = s.text.req().plan.n_window;
    if (asked != n_window_auto || !planner_.draft_may_skip()) {
        return asked;
    }
    const double saved = planner_.draft_saves(n_left);
    if (saved <= 0.0 && planner_.draft_pays(std::numeric_limits<int64_t>::max(), n_left, elapsed_us)) {
        return n_window_some; // nothing is known yet
    }
    int32_t best  = windows.front().n;
    double  value = 0.0;
    for (const auto & [n, share] : windows) {
        const int64_t us   = reading_us(reading_of(s, n));
        const double  more = share * saved - double(us);
        if (more > value || (value == 0.0 && planner_.draft_pays(us, n_left, elapsed_us))) {
            best  = n;
            value = std::max(0.0, more);
        }
    }
    return best;
}

draft_reading verify_worker::reading_of(const verify_slot & s, int32_t n_window) const {
    const int32_t n_text = s.text.n_tokens();
    return draft_reading::of(s.window, std::min(s.text.n_draft_read(), n_text - 1), n_text, n_window);
}

// How long the draft will read: as long as the target would, less what its smaller size and its cache save.
int64_t verify_worker::reading_us(const draft_reading & r) const {
    const pair_profile & p    = planner_.profile();
    const double         pass = p.pass_us(1, false);
    const double         c    = pass > 0.0 ? std::min(1.0, p.step_us(1, false) / pass) : 1.0;
    const double         row  = row_us_ > 0.0 ? row_us_ : p.pass_us(n_row_pass, false) / n_row_pass;
    return int64_t(c * row * r.n_rows);
}

// False: the draft rests.
bool verify_worker::set_orders(const verify_slot & s, verdict_msg & v) const {
    if (alone_ == &s) {
        // With turn-taking, a guess that the pass has no room for would only delay the pass.
        const int32_t n_most = planner_.stance_now() == stance::by_turn ? std::max(0, n_room(s)) : n_draft_cap;
        v.n_ahead            = int16_t(std::min<int32_t>(planner_.n_ahead(), n_most));
        v.n_branch           = planner_.n_branch();
        v.n_want             = planner_.n_want();
        v.least_path         = planner_.least_path();
        v.n_threads          = int16_t(planner_.threads().draft);
    } else {
        const bool    turns  = pool_.stance_now() == stance::by_turn;
        const int32_t n_most = turns ? std::max(0, std::min(n_room(s), n_verify_most(s))) : n_draft_cap;
        v.n_ahead            = int16_t(std::min(orders_.n_ahead, n_most));
        v.n_branch           = int16_t(orders_.n_branch);
        v.least_path         = int16_t(1000 * orders_.least_path);
    }
    v.branch_price = planner_.branch_price();
    v.sharpness    = known_of(s).sharp().order();
    return v.n_ahead == 0 && !(alone_ == &s && planner_.measuring());
}

void verify_worker::tell_draft(verify_slot & s, verdict_msg v) {
    // A draft that rests need not be woken for each token. A draft that is thousands of verdicts behind is of no use to
    // this text, and waiting for it would be worse.
    v.slot             = line_of(s);
    const bool verdict = v.what == verdict_msg::kind::verdict;
    const bool rests   = set_orders(s, v) && verdict && ++s.n_quiet % n_quiet_most != 0;
    const bool quiet   = rests || (verdict && alone_ == nullptr);
    wakes_draft_       = wakes_draft_ || (quiet && !rests);
    s.n_ahead          = v.n_ahead;
    if (s.text.drafting() && !(quiet ? wires_.verdicts.try_push_quiet(v) : wires_.verdicts.try_push(v))) {
        s.text.lose_draft("the draft fell too far behind; the text went on without it");
    }
}

// Before the verdict: the hidden states of the pass's rows that are text now. Nobody waits for a draft head that is
// behind. Without them it goes on from the next ones.
void verify_worker::send_features(const verify_slot & s) {
    feature_ring * ring = wires_.features.get();
    if (ring == nullptr || !s.text.drafting()) {
        return;
    }
    const std::vector<int32_t> & accepted = s.text.accepted();
    const size_t                 n_text   = s.n_read > 0 ? s.n_read : s.i_root + 1 - s.i_first;
    const size_t                 n_rows   = n_text + (s.n_read > 0 ? 0 : accepted.size());
    if (!ring->has_room(n_rows)) {
        return;
    }
    for (size_t i = 0; i < n_rows; ++i) {
        const size_t i_row = i < n_text ? s.i_first + i : s.i_root + 1 + size_t(accepted[i - n_text]);
        model_.features(int32_t(i_row), ring->add(s.text.tokens()[s.n_before + i]));
    }
    const verdict_msg v{
        .what = verdict_msg::kind::features, .slot = line_of(s), .pos = int32_t(s.n_before), .n_rows = int32_t(n_rows)};
    // A verdict follows, unless this was a part of a prompt.
    if (!(s.n_read > 0 ? wires_.verdicts.try_push(v) : wires_.verdicts.try_push_quiet(v))) {
        ring->take_back(n_rows);
    }
}

// Once for all texts of a pass, so that the draft's next step has nodes of all of them.
void verify_worker::wake_others() {
    if (std::exchange(wakes_draft_, false)) {
        wires_.verdicts.wake();
    }
    late_chunks_ = true;
    wake_reader();
}

// What messages to and from the text's draft name. A draft in another process knows the text by its reader's slot; one
// in this process by the slot in the cache, because both caches hold the same beginnings then.
int32_t verify_worker::line_of(const verify_slot & s) const {
    return draft_ == draft_place::elsewhere ? s.text.req().slot : s.index;
}

// The slot whose draft is at work at that line; null: none.
verify_slot * verify_worker::drafting_at(int32_t line) {
    const auto s = std::find_if(slots_.begin(), slots_.end(), [this, line](const verify_slot & x) {
        return x.text.drafting() && line_of(x) == line;
    });
    return s == slots_.end() ? nullptr : &*s;
}

// The connection to a remote draft was made or lost.
void verify_worker::on_link(int32_t line, bool up) noexcept {
    reachable_[size_t(line)] = up;
    for (verify_slot & s : slots_) {
        if (!s.text.active() || line_of(s) != line) {
            continue;
        }
        if (!up && s.text.drafting()) {
            s.text.lose_draft("the draft's host was lost; the text went on without it until it came back");
        } else if (!up && s.text.draft_contact() == contact::returned) {
            s.text.set_contact(contact::none);
        } else if (up && s.text.draft_contact() == contact::none && draft_wanted(s.text.req())) {
            s.text.set_contact(contact::returned);
        }
    }
}

void verify_worker::take_nodes() noexcept {
    node_msg msg;
    while (wires_.nodes.try_pop(msg)) {
        if (msg.slot < 0 || size_t(msg.slot) >= slots_.size()) {
            continue;
        }
        if (msg.what == node_msg::kind::ready || msg.what == node_msg::kind::lost) {
            on_link(msg.slot, msg.what == node_msg::kind::ready);
            continue;
        }
        verify_slot * at = drafting_at(msg.slot);
        if (at == nullptr) {
            continue;
        }
        try {
            on_message(*at, msg);
        } catch (...) { // what comes after it would not fit
            at->text.lose_draft(failure_caught().sentence.c_str());
        }
    }
}

void verify_worker::on_message(verify_slot & s, const node_msg & msg) {
    s.text.on_message();
    if (msg.what == node_msg::kind::node) {
        on_node(s, msg);
    } else if (msg.what == node_msg::kind::share) {
        s.text.on_share(msg);
    } else if (msg.what == node_msg::kind::pause) {
        s.text.on_pause(msg.parent);
    } else if (msg.what == node_msg::kind::failed && msg.id == s.text.draft_request()->id) {
        const std::string & why = s.text.draft_request()->draft_error;
        s.text.lose_draft(
            ((why.empty() ? "the draft failed" : "the draft stopped: " + why) + "; the text went on without it")
                .c_str());
    }
}

void verify_worker::on_node(verify_slot & s, const node_msg & msg) {
    const bool elsewhere = draft_ == draft_place::elsewhere;
    planner_.profile().on_step(msg.n_rows, msg.step_us, elsewhere ? planner_.draft_works() : msg.beside);
    if (elsewhere) {
        s.text.req().draft->count(msg.step_us > 0.0f ? 1 : 0, 1, int64_t(msg.step_us), 0);
    }
    s.text.on_node(msg, guesses_of(s));
}

} // namespace duo
