// What the target's cache holds of which text. The loop around it is in verify_worker.cpp.
#include <algorithm>

#include "base/error.h"
#include "base/same.h"
#include "verify_worker.h"

namespace duo {

namespace {
// Tokens that are worth a copy of their text: evaluating so many takes about as long as several passes.
constexpr size_t n_worth = 64;
} // namespace

// The free slot whose cache has the longest beginning of the text; of equal ones the one that was used least recently.
verify_slot & verify_worker::nearest_slot(std::span<const token_id> tokens) {
    verify_slot * best   = nullptr;
    int32_t       n_best = -1;
    for (verify_slot & s : slots_) {
        if (s.text.active()) {
            continue;
        }
        const int32_t n = n_same(s.cached, tokens);
        if (n > n_best || (n == n_best && s.n_begun < best->n_begun)) {
            best   = &s;
            n_best = n;
        }
    }
    return *best; // the pipeline sends no more requests than there are slots
}

// For a text that begins: the wanted slot, if it is free. What is kept of the text in RAM goes into the place of the
// text that is missed least, and so does a text that is not to use the cache.
verify_slot & verify_worker::choose_slot(const request & req) {
    for (verify_slot & s : slots_) {
        if (s.index == req.wanted && !s.text.active()) {
            return s;
        }
    }
    verify_slot & nearest = nearest_slot(req.prompt);
    return !req.use_cache || kept_beyond(nearest, req.prompt) != nullptr ? oldest_slot() : nearest;
}

// The text in RAM that has clearly more of the tokens than the slot's cache has. Null: none has.
const kept_texts::text * verify_worker::kept_beyond(const verify_slot & s, std::span<const token_id> tokens) {
    const kept_texts::text * kept = kept_.find(tokens);
    const bool worth = kept != nullptr && n_same(kept->tokens, tokens) >= n_same(s.cached, tokens) + int32_t(n_worth);
    return worth ? kept : nullptr;
}

// The free slot that was used least recently.
verify_slot & verify_worker::oldest_slot() {
    verify_slot * oldest = nullptr;
    for (verify_slot & s : slots_) {
        if (!s.text.active() && (oldest == nullptr || s.n_begun < oldest->n_begun)) {
            oldest = &s;
        }
    }
    return *oldest;
}

// The same, of those whose cells another text could have. Null: there is none.
verify_slot * verify_worker::oldest_ended() {
    verify_slot * oldest = nullptr;
    for (verify_slot & s : slots_) {
        if (!s.text.active() && !s.cached.empty() && (oldest == nullptr || s.n_begun < oldest->n_begun)) {
            oldest = &s;
        }
    }
    return oldest;
}

// A text begins: its slot keeps what it has of it, or gets what is kept in RAM.
void verify_worker::keep_beginning(verify_slot & s) {
    const bool   uses_cache = s.text.req().use_cache;
    const size_t n_here     = uses_cache ? size_t(n_same(s.cached, s.text.tokens())) : 0;
    if (s.cached.size() >= n_here + n_worth) {
        push_out(s);
    }
    if (uses_cache) {
        bring_back(s);
        cut(s);
    } else {
        clear(s);
    }
    const auto n_cached = int32_t(s.cached.size());
    if (const int32_t n_mark = s.text.req().n_mark; n_mark == n_cached || n_mark == n_cached + 1) {
        mark(s); // the next pass would go on beyond it
    }
    s.text.stats().n_prompt_cached   = n_cached;
    s.text.stats().n_prompt_returned = size_t(n_cached) > n_here ? n_cached : 0;
}

// Guesses that the next pass may verify. With a kept state, each wrong one makes the rows before it necessary again:
// their number must not grow for ever, so then a pass without guesses comes between.
int32_t verify_worker::n_room(const verify_slot & s) const {
    const int32_t n_again = model_.undo() == undo_kind::copy ? int32_t(s.n_missing()) - 1 : 0;
    return std::min(s.text.n_room(s.cached.size()), std::max(0, model_.n_undo() - n_again));
}

// Forgets what the slot's cache does not have in common with its text. The last token is evaluated even if it is
// cached: its logits are wanted. Throws duo::error if the cache cannot be cleared.
void verify_worker::cut(verify_slot & s) {
    const auto & tokens = s.text.tokens();
    size_t       n_kept = std::min(size_t(n_same(s.cached, tokens)), tokens.size() - 1);
    // A draft head's first new row is made of the last old token's hidden state, so that is evaluated once more. A
    // recurrent state that cannot go back by this one row stays: reading the text again would take longer, and the head
    // can do without (draft_text).
    if (wires_.features && draft_wanted(s.text.req()) && n_kept > 0) {
        const bool goes = model_.undo() == undo_kind::cells || (model_.undo() == undo_kind::snapshots &&
                                                                model_.rollback(s.first_branch, int32_t(n_kept) - 1));
        n_kept -= goes ? 1 : 0;
    }
    if (n_kept < s.cached.size()) {
        const auto n = size_t(model_.take_back(s.first_branch, int32_t(n_kept)));
        if (n > n_kept) {
            throw error("the target's cache could not be cleared");
        }
        s.cached.resize(n);
    }
}

// A pass over one row may leave nothing of it (token_model::n_held).
void verify_worker::drop_unheld(verify_slot & s) {
    if (model_.undo() == undo_kind::copy) {
        s.cached.resize(std::min(s.cached.size(), size_t(model_.n_held(s.first_branch))));
    }
}

// The text ends: guesses of its last pass that were not accepted go.
void verify_worker::forget_rejected(verify_slot & s) noexcept {
    const auto n_kept = size_t(n_same(s.cached, s.text.tokens()));
    try {
        if (n_kept < s.cached.size()) {
            // There is one way back by a snapshot, and a text that goes on with a draft head needs its last row again.
            if (wires_.features && n_kept > 1 && model_.undo() == undo_kind::snapshots &&
                model_.rollback(s.first_branch, int32_t(n_kept) - 1)) {
                s.cached.resize(n_kept - 1);
                return;
            }
            s.cached.resize(std::min(s.cached.size(), size_t(model_.take_back(s.first_branch, int32_t(n_kept)))));
        }
    } catch (...) {
        clear(s);
    }
}

// Before the slot's cache is emptied or cut: keeps the text in RAM.
void verify_worker::push_out(const verify_slot & s) noexcept {
    try {
        if (s.cached.size() >= n_worth && kept_.wants(s.cached)) {
            kept_.add(s.cached, model_.save(s.first_branch));
        }
    } catch (...) {
        // there is no memory for it, or the model cannot save: the text will be evaluated again
    }
}

// A text begins or goes on: its slot gets what is kept of it in RAM. Texts that are written keep their cells.
void verify_worker::bring_back(verify_slot & s) noexcept {
    const std::span<const token_id> tokens = s.text.tokens();
    const kept_texts::text *        kept   = kept_beyond(s, tokens);
    if (kept == nullptr) {
        return;
    }
    const size_t n_kept = kept->tokens.size();
    size_t       n_used = n_kept;
    for (const verify_slot & other : slots_) {
        n_used += other.text.active() && &other != &s ? other.cached.size() : 0;
    }
    if (n_used > size_t(model_.n_cells())) {
        return;
    }
    push_out(s);
    clear(s);
    for (verify_slot * ended = oldest_ended(); !fits(n_kept) && ended != nullptr; ended = oldest_ended()) {
        push_out(*ended);
        clear(*ended);
    }
    kept = kept_beyond(s, tokens); // the copies may have taken its room
    if (kept == nullptr || kept->tokens.size() > n_kept) {
        return;
    }
    try {
        model_.restore(s.first_branch, kept->saved);
        s.cached = kept->tokens;
        cut(s);
    } catch (...) {
        kept_.drop(*kept); // the text is evaluated again
        clear(s);
    }
}

// Empties the slot's branches, whatever they hold.
void verify_worker::clear(verify_slot & s) noexcept {
    s.cached.clear();
    try {
        for (int32_t b = 0; b < n_branches_; ++b) {
            model_.rollback(s.first_branch + b, 0);
        }
    } catch (...) {
        // the next request meets the same failure and reports it
    }
}

bool verify_worker::fits(size_t n_rows) const {
    for (const verify_slot & s : slots_) {
        n_rows += s.cached.size();
    }
    return n_rows <= size_t(model_.n_cells());
}

// Makes room for n more rows: first what is kept of texts that have ended goes, the oldest first; then the text that
// began last waits until others have ended, and its rows of the pass need no room.
void verify_worker::make_room(size_t n_rows) {
    while (!fits(n_rows)) {
        if (verify_slot * oldest = oldest_ended(); oldest != nullptr) {
            push_out(*oldest);
            clear(*oldest);
        } else if (active_.size() > 1) {
            verify_slot & last = *active_.back();
            if (std::find(pass_.begin(), pass_.end(), &last) != pass_.end()) {
                n_rows -= std::min(n_rows, last.n_read > 0 ? last.n_read : last.n_missing());
            }
            park(last);
        } else {
            return; // one text always fits
        }
    }
}

// The text keeps its tokens and reads them again later, or gets its cells back.
void verify_worker::park(verify_slot & s) {
    if (!wires_.on_host) { // there the client's draft waits for the next verdict
        end_draft(s);
        s.text.set_contact(draft_wanted(s.text.req()) && reachable_[size_t(line_of(s))] ? contact::owed
                                                                                        : contact::none);
        s.text.set_draft_read(0);
    }
    push_out(s);
    clear(s);
    s.parked = true;
    std::erase(active_, &s);
    alone_ = nullptr;
}

bool verify_worker::any_parked() const {
    return std::any_of(slots_.begin(), slots_.end(), [](const verify_slot & s) { return s.parked; });
}

// A parked text goes on when the cache has room for what it had, and for as much again as a pass may add. What is kept
// of texts that have ended is in nobody's way.
void verify_worker::wake_parked() {
    verify_slot * first  = nullptr;
    size_t        n_used = 0; // by texts that are written
    for (verify_slot & s : slots_) {
        n_used += s.text.active() ? s.cached.size() : 0;
        if (s.parked && (first == nullptr || s.n_begun < first->n_begun)) {
            first = &s;
        }
    }
    if (first == nullptr) {
        return;
    }
    const size_t n_reserve = (active_.size() + 1) * size_t(n_draft_cap);
    if (active_.empty() || n_used + first->text.tokens().size() + n_reserve <= size_t(model_.n_cells())) {
        first->parked = false;
        active_.insert(std::find_if(active_.begin(), active_.end(),
                                    [first](const verify_slot * s) { return s->n_begun > first->n_begun; }),
                       first);
        bring_back(*first);
    }
}

} // namespace duo
