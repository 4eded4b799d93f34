// What the target's cache holds of which text. The loop around it is in verify_worker.cpp.
#include <algorithm>

#include "../error.h"
#include "same.h"
#include "verify_worker.h"

namespace duo {

// Keeps what the slot's cache has in common with its text. The last token is evaluated even if it is cached: its
// logits are wanted.
void verify_worker::keep_beginning(verify_slot & s) {
    const auto & tokens = s.text.tokens();
    const size_t n_kept = s.text.req().use_cache ? std::min(size_t(n_same(s.cached, tokens)), tokens.size() - 1) : 0;
    if (n_kept < s.cached.size()) {
        const bool kept = model_.rollback(s.first_branch, int32_t(n_kept));
        if (!kept && !model_.rollback(s.first_branch, 0)) {
            throw error("the target's cache could not be cleared");
        }
        s.cached.resize(kept ? n_kept : 0);
    }
    s.text.stats().n_prompt_cached = int32_t(s.cached.size());
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
// began last waits until others have ended.
void verify_worker::make_room(size_t n_rows) {
    while (!fits(n_rows)) {
        verify_slot * oldest = nullptr;
        for (verify_slot & s : slots_) {
            if (!s.text.active() && !s.cached.empty() && (oldest == nullptr || s.n_begun < oldest->n_begun)) {
                oldest = &s;
            }
        }
        if (oldest != nullptr) {
            clear(*oldest);
        } else if (active_.size() > 1) {
            park(*active_.back());
        } else {
            return; // one text always fits
        }
    }
}

// The text keeps its tokens and reads them again later.
void verify_worker::park(verify_slot & s) {
    end_draft(s);
    s.text.set_contact(draft_wanted(s.text.req()) && reachable_ ? contact::owed : contact::none);
    s.text.set_draft_read(0);
    clear(s);
    s.parked = true;
    std::erase(active_, &s);
    alone_ = nullptr;
}

// A parked text goes on when the cache has room for what it had, and for as much again as a pass may add.
void verify_worker::wake_parked() {
    verify_slot * first = nullptr;
    for (verify_slot & s : slots_) {
        if (s.parked && (first == nullptr || s.n_begun < first->n_begun)) {
            first = &s;
        }
    }
    const auto n_reserve = active_.empty() ? 0 : (active_.size() + 1) * size_t(n_draft_cap);
    if (first != nullptr && (active_.empty() || fits(first->text.tokens().size() + n_reserve))) {
        first->parked = false;
        active_.push_back(first);
    }
}

} // namespace duo
