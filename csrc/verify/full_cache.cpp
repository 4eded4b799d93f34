#include "full_cache.h"

#include <algorithm>
#include <utility>

namespace duo {

namespace {
bool is_shifted(const verify_slot * s) {
    return s->text.context().n_left_out() > 0;
}
} // namespace

void full_cache::make_room(size_t n_rows) {
    while (!cache_.make_room(n_rows) && texts_.size() > 1) { // one text always fits
        verify_slot & last = *last_to_wait();
        const auto &  in   = pass_.slots();
        if (std::find(in.begin(), in.end(), &last) != in.end()) {
            n_rows -= std::min(n_rows, last.n_read > 0 ? last.n_read : last.n_missing());
        }
        park(last);
    }
}

// A text whose context was shifted may never end, so it waits for others, whenever it began. Before the pass that moves
// its keys they could not be saved.
verify_slot * full_cache::last_to_wait() const {
    const auto shifted = std::find_if(texts_.all().rbegin(), texts_.all().rend(),
                                      [](const verify_slot * s) { return is_shifted(s) && !s->keys_move(); });
    return shifted == texts_.all().rend() ? texts_.all().back() : *shifted;
}

// The text keeps its tokens and reads them again later, or gets its cells back.
void full_cache::park(verify_slot & s) {
    if (!on_host_) { // there the client's draft waits for the next verdict
        drafts_.end(s);
        s.draft.set(drafts_.reachable(s) ? draft_contact::state::owed : draft_contact::state::none);
        s.draft.forget_read(0);
    }
    cache_.save_to_ram(s);
    cache_.clear(s);
    s.parked.waits = true;
    texts_.remove(s);
    plans_.texts().end_alone();
}

bool full_cache::any_parked() const {
    return std::ranges::any_of(cache_.slots(), [](const verify_slot & s) { return s.parked.waits; });
}

// What is kept of texts that have ended is in nobody's way.
void full_cache::wake_parked(size_t n_cells) {
    verify_slot * first  = nullptr;
    size_t        n_used = 0; // by texts that are written
    for (verify_slot & s : cache_.slots()) {
        n_used += s.text.active() ? s.cached.size() : 0;
        if (s.parked.waits &&
            (first == nullptr || std::pair(is_shifted(&s), s.n_begun) < std::pair(is_shifted(first), first->n_begun))) {
            first = &s;
        }
    }
    if (first == nullptr) {
        return;
    }
    const auto fits = [&] {
        const size_t n_reserve = (texts_.size() + 1) * size_t(n_draft_cap);
        return texts_.empty() || n_used + first->text.context().tokens().size() + n_reserve <= n_cells;
    };
    while (!fits() && !is_shifted(first) && is_shifted(last_to_wait()) && !last_to_wait()->keys_move()) {
        n_used -= last_to_wait()->cached.size();
        park(*last_to_wait());
    }
    if (fits()) {
        first->parked.waits = false;
        texts_.add_again(*first);
        cache_.restore_from_ram(*first);
    }
}

} // namespace duo
