#include "drafts.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "picture_rows.h"

namespace duo {

namespace {
constexpr uint32_t n_quiet_most   = 256; // verdicts before a draft at rest is woken to take them
constexpr int64_t  reading_factor = 4;   // a draft that reads is waited for so many times as long as it should take

// The draft gets the text as the target sees it after context shifts, and without pictures or with its own rows of
// them. A grammar whose text has a gap is none for it.
void leave_out(text_params & of, const verify_text & text) {
    const text_context & context = text.context();
    const int32_t        n_gone  = context.n_left_out() + n_less_for_draft(text.req());
    if (n_gone == 0) {
        return;
    }
    sampling_params & s = of.sampling;
    s.n_left_out        = n_gone;
    if (text.req().pictures.empty() && s.n_prompt < context.n_first() + n_gone) {
        s.grammar.clear();
        s.n_prompt = -1;
    } else if (s.n_prompt >= 0) {
        s.n_prompt -= n_gone;
    }
}
} // namespace

drafts::drafts(token_model & model, target_cache & cache, pass_planner & plans, wires & w, place where)
    : model_(model), cache_(cache), plans_(plans), wires_(w), place_(where),
      reachable_(cache.slots().size(), where == place::here) {
}

bool drafts::wanted(const request & req) const {
    return place_ != place::none && req.plan.has_model && req.plan.mode != run_mode::plain && req.plan.n_max != 0 &&
           req.n_predict != 0;
}

// A draft in another process knows the text by its reader's slot; one in this process by the slot in the cache, because
// both caches hold the same beginnings then.
void drafts::begin_text(verify_slot & s, request & req) {
    s.for_draft    = wanted(req);
    s.message_slot = place_ == place::elsewhere ? req.slot : s.index;
}

void drafts::begin(verify_slot & s, const request & req) {
    if (!req.pictures.empty() && &req == &s.text.req()) {
        begin_in_mid_text(s, n_window_auto); // its prompt is another one
        return;
    }
    s.draft.tell(req, s.draft.reading_of(n_for_draft(s), req.plan.n_window).window);
    if (s.end_owed >= 0 && wires_.verdicts.try_push({.what = verdict_msg::kind::end, .slot = s.end_owed})) {
        s.end_owed = -1;
    }
    if (s.end_owed >= 0) {
        return;
    }
    req.draft_done.store(false, std::memory_order_relaxed);
    s.draft.set(state::at_work);
    tell(s, {.what = verdict_msg::kind::begin, .req = &req});
    if (!s.drafting()) {
        req.draft_done.store(true, std::memory_order_relaxed);
    }
}

void drafts::begin_in_mid_text(verify_slot & s, int32_t n_window) {
    s.draft.set(state::none);
    constexpr uint64_t n_most      = uint64_t(1) << 22; // such ids are larger than those of the engine's requests
    const request &    req         = s.text.req();
    auto               r           = std::make_unique<request>();
    static_cast<text_params &>(*r) = req;
    r->prompt                      = text_for_draft(req, s.text.context().tokens());
    r->pictures                    = pictures_for_draft(req);
    leave_out(*r, s.text);
    r->slot          = req.slot;
    r->draft         = req.draft;
    r->plan.n_window = !r->pictures.empty()                 ? n_window_all
                       : req.plan.n_window == n_window_auto ? n_window
                                                            : req.plan.n_window;
    r->id            = request_node((++n_late_begins_ % n_most + 1) << 40 | (req.id & 0xffffffffff));
    s.text.guesses().restart(r->id, s.text.tokens());
    late_begins_.push_back(std::move(r));
    begin(s, *late_begins_.back());
    forget_late_begins();
}

void drafts::forget_late_begins() {
    std::erase_if(late_begins_, [this](const auto & r) {
        const auto needs = [&r](const verify_slot & s) { return s.draft.told() == r.get(); };
        return r->draft_done.load(std::memory_order_acquire) && std::ranges::none_of(cache_.slots(), needs);
    });
}

// What a draft reads of a text that has come to its end is of use for the next one. Of one that was cancelled, it is
// not worth its time.
void drafts::end(verify_slot & s) {
    const request * told  = s.draft.told();
    const auto      begun = std::ranges::find(late_begins_, told, [](const auto & r) { return r.get(); });
    if (begun != late_begins_.end() && s.text.cancelled()) {
        (*begun)->cancelled.store(true, std::memory_order_relaxed);
    }
    wires_.signals[size_t(s.message_slot)].step_obsolete.store(told != nullptr, std::memory_order_relaxed);
    if (told != nullptr && !told->draft_done.load(std::memory_order_acquire) &&
        !wires_.verdicts.try_push({.what = verdict_msg::kind::end, .slot = s.message_slot})) {
        s.end_owed = s.message_slot;
    }
}

void drafts::stop_reading() noexcept {
    for (const auto & r : late_begins_) {
        r->cancelled.store(true, std::memory_order_relaxed);
    }
}

// The draft's text becomes another one, which it reads when that pays.
void drafts::on_shift(verify_slot & s) {
    end(s);
    s.draft.set(reachable(s) ? state::owed : state::none);
    s.draft.forget_read(s.text.context().n_first());
}

void drafts::begin_if_it_pays(verify_slot & s) {
    const verify_stats & st = s.text.req().stats;
    if (s.draft.now() != state::owed || st.n_passes == 0 || plans_.drafts_rest()) {
        return;
    }
    const int64_t       elapsed = now_us() - st.t_begin_us;
    const int32_t       n_left  = plans_.window().n_to_come(s);
    const chosen_window w       = plans_.window().choose(s, n_left, elapsed);
    const int64_t       us      = plans_.window().reading_us(s, w.n);
    if (s.text.req().plan.always || plans_.plans().worth().pays(us, n_left, elapsed, w.share)) {
        begin_in_mid_text(s, w.n);
        if (s.drafting()) {
            begin_reading(s, us);
        }
    }
}

// us: what it should take.
void drafts::begin_reading(verify_slot & s, int64_t us) {
    s.draft.set(state::reading);
    s.read_by_us = now_us() + reading_factor * us;
}

bool drafts::begin_owed(const std::vector<verify_slot *> & texts) {
    bool any = false;
    for (verify_slot * s : texts) {
        const state now = s->draft.now();
        if (now == state::returned ||
            (now == state::owed && s->text.req().stats.n_passes > 0 && !plans_.drafts_rest())) {
            begin_in_mid_text(*s, plans_.plans().worth().may_skip() ? n_window_some : n_window_auto);
            any = true;
        }
    }
    return any;
}

// A draft that rests need not be woken for each token. A draft that is thousands of verdicts behind is of no use to
// this text, and waiting for it would be worse.
void drafts::tell(verify_slot & s, verdict_msg v) {
    v.slot             = s.message_slot;
    const bool verdict = v.what == verdict_msg::kind::verdict;
    const bool missed  = verdict && s.told.spared;
    s.told.spared      = verdict && plans_.spares_draft(s);
    if (missed && !s.told.spared && s.draft.drafting() && !s.draft.late()) { // it now reads all that it was spared
        begin_reading(s, plans_.window().missed_us(s));
    }
    const bool rests = plans_.set_orders(s, v) && verdict && ++s.told.n_quiet % n_quiet_most != 0;
    const bool quiet = rests || (verdict && !plans_.texts().is_alone());
    wakes_           = wakes_ || (quiet && !rests);
    s.told.n_ahead   = v.n_ahead;
    if (s.drafting() && !(quiet ? wires_.verdicts.try_push_quiet(v) : wires_.verdicts.try_push(v))) {
        s.draft.lose(s.text.req(), "the draft fell too far behind; the text went on without it");
    }
}

void drafts::send_to_rest(const std::vector<verify_slot *> & texts) {
    for (verify_slot * s : texts) {
        if (plans_.drafts_rest() && s->told.n_ahead > 0 && s->drafting()) {
            tell(*s, {.what = verdict_msg::kind::orders});
        }
    }
}

void drafts::send_features(const verify_slot & s) {
    feature_ring * ring = wires_.features.get();
    if (ring == nullptr || !s.drafting() || is_picture(s.text.context().tokens()[s.n_before])) {
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
        model_.states().features(int32_t(i_row), ring->add(s.text.context().tokens()[s.n_before + i]));
    }
    const verdict_msg v{.what   = verdict_msg::kind::features,
                        .slot   = s.message_slot,
                        .pos    = int32_t(s.n_before) - s.text.req().pictures.n_rows(int32_t(s.n_before)),
                        .n_rows = int32_t(n_rows)};
    // A verdict follows, unless this was a part of a prompt.
    if (!(s.n_read > 0 ? wires_.verdicts.try_push(v) : wires_.verdicts.try_push_quiet(v))) {
        ring->take_back(n_rows);
    }
}

void drafts::wake() {
    if (std::exchange(wakes_, false)) {
        wires_.verdicts.wake();
    }
}

verify_slot * drafts::drafting_at(int32_t line) {
    auto &     slots = cache_.slots();
    const auto s =
        std::ranges::find_if(slots, [line](const auto & x) { return x.drafting() && x.message_slot == line; });
    return s == slots.end() ? nullptr : &*s;
}

// The connection to a draft elsewhere was made or lost.
void drafts::on_link(int32_t line, bool up) noexcept {
    reachable_[size_t(line)] = up;
    for (verify_slot & s : cache_.slots()) {
        if (!s.text.active() || s.message_slot != line) {
            continue;
        }
        if (!up && s.drafting()) {
            s.draft.lose(s.text.req(), "the draft's host was lost; the text went on without it until it came back");
        } else if (!up && s.draft.now() == state::returned) {
            s.draft.set(state::none);
        } else if (up && s.draft.now() == state::none && s.for_draft) {
            s.draft.set(state::returned);
        }
    }
}

void drafts::take_nodes() noexcept {
    node_msg msg;
    while (wires_.nodes.try_pop(msg)) {
        if (msg.slot < 0 || size_t(msg.slot) >= reachable_.size()) {
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
            at->draft.lose(at->text.req(), failure_caught().sentence.c_str());
        }
    }
}

void drafts::on_message(verify_slot & s, const node_msg & msg) {
    s.draft.on_message();
    if (msg.what == node_msg::kind::node) {
        on_node(s, msg);
    } else if (msg.what == node_msg::kind::share) {
        s.text.guesses().on_share(msg);
    } else if (msg.what == node_msg::kind::pause) {
        s.text.guesses().on_pause(msg.parent);
    } else if (msg.what == node_msg::kind::failed && msg.id == s.draft.told()->id) {
        const std::string & why = s.draft.told()->draft_error;
        s.draft.lose(s.text.req(), ((why.empty() ? "the draft failed" : "the draft stopped: " + why) +
                                    "; the text went on without it")
                                       .c_str());
    }
}

void drafts::on_node(verify_slot & s, const node_msg & msg) {
    const bool elsewhere = place_ == place::elsewhere;
    plans_.on_step(s, msg, elsewhere ? plans_.plans().draft_works() : msg.beside);
    if (elsewhere) {
        s.text.req().draft->count(msg.step_us > 0.0f ? 1 : 0, 1, int64_t(msg.step_us), 0);
    }
    s.draft.on_node(s.text.guesses().on_node(msg, s.text.tokens(), plans_.guesses_of(s)), n_for_draft(s));
}

} // namespace duo
