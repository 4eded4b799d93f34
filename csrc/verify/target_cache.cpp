#include "target_cache.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/same.h"
#include "picture_rows.h"
#include "prompt_marks.h"

namespace duo {

namespace {
// Tokens that are worth a copy of their text: evaluating so many takes about as long as several passes.
constexpr size_t n_worth = 64;

// Leading tokens of a text with these scales that the slot holds.
int32_t n_held_of(const verify_slot & s, std::span<const token_id> tokens, const lora_scales & scales) {
    return s.scales == scales ? n_same(s.cached, tokens) : 0;
}
} // namespace

target_cache::target_cache(token_model & model, size_t n_slots, int64_t n_kept_bytes, bool for_head)
    : model_(model), n_branches_(std::max(1, model.facts().n_branch / int32_t(n_slots))), for_head_(for_head),
      kept_(n_kept_bytes) {
    slots_.reserve(n_slots);
    for (int32_t i = 0; i < int32_t(n_slots); ++i) {
        slots_.emplace_back(model, i, n_branches_);
    }
}

verify_slot & target_cache::nearest_slot(std::span<const token_id> tokens, const lora_scales & scales) {
    verify_slot * best   = nullptr;
    int32_t       n_best = -1;
    for (verify_slot & s : slots_) {
        if (s.text.active()) {
            continue;
        }
        const int32_t n = n_held_of(s, tokens, scales);
        if (n > n_best || (n == n_best && s.n_begun < best->n_begun)) {
            best   = &s;
            n_best = n;
        }
    }
    return *best; // the pipeline sends no more requests than there are slots
}

verify_slot & target_cache::choose_slot(const request & req) {
    for (verify_slot & s : slots_) {
        if (s.index == req.wanted && !s.text.active()) {
            return s;
        }
    }
    verify_slot & nearest = nearest_slot(req.prompt, req.scales);
    return !req.use_cache || kept_beyond(nearest, req.prompt, req.scales) != nullptr ? *oldest_slot() : nearest;
}

// The text in RAM that has clearly more of the tokens than the slot's cache has. Null: none has.
const kept_texts::text * target_cache::kept_beyond(const verify_slot & s, std::span<const token_id> tokens,
                                                   const lora_scales & scales) {
    const kept_texts::text * kept = kept_.find(tokens, scales);
    const bool               worth =
        kept != nullptr && n_same(kept->tokens, tokens) >= n_held_of(s, tokens, scales) + int32_t(n_worth);
    return worth ? kept : nullptr;
}

verify_slot * target_cache::oldest_slot(bool with_cells) {
    verify_slot * oldest = nullptr;
    for (verify_slot & s : slots_) {
        if (!s.text.active() && !(with_cells && s.cached.empty()) &&
            (oldest == nullptr || s.n_begun < oldest->n_begun)) {
            oldest = &s;
        }
    }
    return oldest;
}

void target_cache::keep_beginning(verify_slot & s) {
    const lora_scales & scales     = s.text.req().scales;
    const bool          uses_cache = s.text.req().use_cache;
    const size_t        n_here     = uses_cache ? size_t(n_held_of(s, s.text.context().tokens(), scales)) : 0;
    if (s.cached.size() >= n_here + n_worth) {
        save_to_ram(s);
    }
    if (s.scales != scales) {
        clear(s);
        s.scales = scales;
    }
    if (uses_cache) {
        restore_from_ram(s);
        cut(s);
    } else {
        clear(s);
    }
    const auto n_cached = int32_t(s.cached.size());
    if (const int32_t n_mark = s.text.req().n_mark; n_mark == n_cached || n_mark == n_cached + 1) {
        mark(model_, s); // the next pass would go on beyond it
    }
    s.text.req().n_cached.store(n_cached, std::memory_order_relaxed);
    s.text.req().stats.n_prompt_cached   = n_cached;
    s.text.req().stats.n_prompt_returned = size_t(n_cached) > n_here ? n_cached : 0;
}

// Guesses that the next pass may verify. With a kept state, each wrong one makes the rows before it necessary again:
// their number must not grow for ever, so then a pass without guesses comes between.
int32_t target_cache::n_room(const verify_slot & s) const {
    const int32_t n_again = model_.facts().undo == undo_kind::copy ? int32_t(s.n_missing()) - 1 : 0;
    return std::min(s.text.n_room(s.cached.size()), std::max(0, model_.facts().n_undo - n_again));
}

// Forgets what the slot's cache does not have in common with its text. The last token is evaluated even if it is
// cached: its logits are wanted. Throws duo::error if the cache cannot be cleared.
void target_cache::cut(verify_slot & s) {
    const auto & tokens = s.text.context().tokens();
    size_t       n_kept = whole_pictures(s, std::min(size_t(n_same(s.cached, tokens)), tokens.size() - 1));
    // A draft head's first new row is made of the last old token's hidden state, so that is evaluated once more. A
    // recurrent state that cannot go back by this one row stays: reading the text again would take longer, and the head
    // can do without (draft_text).
    if (for_head_ && s.for_draft && n_kept > 0 && !is_picture(s.cached[n_kept - 1])) {
        const bool goes =
            model_.facts().undo == undo_kind::cells ||
            (model_.facts().undo == undo_kind::snapshots && model_.rollback(s.first_branch, int32_t(n_kept) - 1));
        n_kept -= goes ? 1 : 0;
    }
    if (n_kept < s.cached.size()) {
        take_back(s, n_kept);
    }
}

void target_cache::take_back(verify_slot & s, size_t n_kept) {
    const auto n = size_t(model_.take_back(s.first_branch, int32_t(n_kept)));
    if (n > n_kept) {
        throw error("the target's cache could not be cleared");
    }
    s.cached.resize(n);
}

void target_cache::go_back(verify_slot & s, size_t n_kept) {
    take_back(s, whole_pictures(s, n_kept));
    for (int32_t b = 1; b < n_branches_; ++b) {
        if (model_.take_back(s.first_branch + b, 0) > 0) {
            throw error("the target's cache could not be cleared");
        }
    }
}

void target_cache::on_read(verify_slot & s) {
    const auto from = s.text.context().tokens().begin() + std::ptrdiff_t(s.cached.size());
    s.cached.insert(s.cached.end(), from, from + std::ptrdiff_t(s.n_read));
    mark_if_due(model_, s);
}

void target_cache::on_verified(verify_slot & s) {
    const pass_tree & tree = s.text.guesses().tree();
    s.cached               = s.text.context().tokens();
    for (size_t i = 0; i < tree.rows().size() && tree.rows()[i].branch == 0; ++i) {
        s.cached.push_back(tree.at_row(int32_t(i)).token);
    }
    drop_unheld(s);
}

void target_cache::trim(verify_slot & s, size_t n_kept, size_t n_again) {
    if (n_kept < s.cached.size()) {
        const auto n = size_t(model_.take_back(s.first_branch, int32_t(n_kept)));
        if (n > n_kept || n + n_again < s.cached.size()) {
            throw error(error_kind::bad_value, "the target's cache cannot be rolled back; run without a draft");
        }
        s.cached.resize(n);
    }
}

void target_cache::drop_unheld(verify_slot & s) {
    if (model_.facts().undo == undo_kind::copy) {
        s.cached.resize(std::min(s.cached.size(), size_t(model_.n_held(s.first_branch))));
    }
}

void target_cache::forget_rejected(verify_slot & s) noexcept {
    const text_context & context = s.text.context();
    // What lies behind a gap was computed with the tokens that are left out, so no other text may go on with it.
    const auto n_same_rows = size_t(n_same(s.cached, context.tokens()));
    const auto n_kept      = context.n_left_out() > 0 ? size_t(context.n_first()) : whole_pictures(s, n_same_rows);
    try {
        if (n_kept < s.cached.size()) {
            // There is one way back by a snapshot, and a text that goes on with a draft head needs its last row again.
            if (for_head_ && n_kept > 1 && model_.facts().undo == undo_kind::snapshots &&
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

// Keys that are to be moved in the next pass cannot be saved.
void target_cache::save_to_ram(verify_slot & s) noexcept {
    const bool whole = !s.text.active() || s.text.context().n_left_out() == 0;
    try {
        // A text without room is not even copied.
        if (whole && s.cached.size() >= n_worth && kept_.wants(s.cached, s.scales) &&
            kept_.fits(model_.saved_bytes(s.first_branch))) {
            kept_.add(s.cached, model_.save(s.first_branch), s.scales);
        }
        if (!whole && !s.cached.empty() && !s.keys_move()) { // to read it again would give other bits
            s.parked.cells = {.tokens = s.cached, .saved = model_.save(s.first_branch)};
        }
    } catch (...) {
        // there is no memory for it, or the model cannot save: the text will be evaluated again
    }
}

void target_cache::restore_from_ram(verify_slot & s) noexcept {
    const std::span<const token_id> tokens = s.text.context().tokens();
    if (const auto own = std::exchange(s.parked.cells, {}); !own.tokens.empty()) {
        clear(s);
        try {
            if (make_room(own.tokens.size())) {
                model_.restore(s.first_branch, own.saved);
                s.cached = own.tokens;
            }
        } catch (...) {
            clear(s);
        }
        return;
    }
    const kept_texts::text * kept = kept_beyond(s, tokens, s.scales);
    if (kept == nullptr) {
        return;
    }
    const size_t n_kept = kept->tokens.size();
    size_t       n_used = n_kept;
    for (const verify_slot & other : slots_) {
        n_used += other.text.active() && &other != &s ? other.cached.size() : 0;
    }
    if (n_used > size_t(model_.facts().n_cells)) {
        return;
    }
    save_to_ram(s);
    clear(s);
    make_room(n_kept);
    kept = kept_beyond(s, tokens, s.scales); // the copies may have taken its room
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

void target_cache::clear(verify_slot & s) noexcept {
    s.cached.clear();
    try {
        for (int32_t b = 0; b < n_branches_; ++b) {
            model_.rollback(s.first_branch + b, 0);
        }
    } catch (...) {
        // the next request meets the same failure and reports it
    }
}

size_t target_cache::n_free() const {
    size_t n_used = 0;
    for (const verify_slot & s : slots_) {
        n_used += s.cached.size();
    }
    return size_t(model_.facts().n_cells) - std::min(n_used, size_t(model_.facts().n_cells));
}

bool target_cache::make_room(size_t n_rows) {
    while (n_rows > n_free()) {
        verify_slot * oldest = oldest_slot(true);
        if (oldest == nullptr) {
            return false;
        }
        save_to_ram(*oldest);
        clear(*oldest);
    }
    return true;
}

} // namespace duo
