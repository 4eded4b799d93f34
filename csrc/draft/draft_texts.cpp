#include "draft_texts.h"

#include <algorithm>

namespace duo {

draft_texts::draft_texts(token_model & model, const wires & w, int32_t n_texts)
    : model_(model), wires_(w), pool_(model) {
    for (int32_t slot = 0; slot < n_texts; ++slot) {
        texts_.emplace_back(model, pool_, slot);
    }
}

draft_text * draft_texts::find(int32_t slot) {
    return slot < 0 || size_t(slot) >= texts_.size() ? nullptr : &texts_[size_t(slot)];
}

bool draft_texts::any_wants_step() const {
    return std::any_of(texts_.begin(), texts_.end(), [this](const draft_text & t) { return wants_step(t); });
}

int32_t draft_texts::n_free() const {
    int32_t n = model_.facts().n_cells;
    for (const draft_text & t : texts_) {
        n -= t.cache().n_cached();
    }
    return n;
}

int32_t draft_texts::make_room(const draft_text & text) {
    int32_t n = 0;
    for (draft_text & t : texts_) {
        if (&t != &text && !t.active() && t.cache().n_cached() > 0) {
            n += t.cache().n_cached();
            t.cache().clear();
        }
    }
    return n;
}

bool draft_texts::shares_cache(const draft_text & text) const {
    return std::any_of(texts_.begin(), texts_.end(),
                       [&text](const draft_text & t) { return &t != &text && t.active() && t.cache().n_cached() > 0; });
}

void draft_texts::tell(worker_usage & usage) const noexcept {
    usage.n_branches = pool_.n_taken();
    usage.n_active   = 0;
    for (const draft_text & t : texts_) {
        usage.cells[size_t(t.slot())] = t.cache().n_cached();
        usage.n_active += t.active() ? 1 : 0;
    }
}

} // namespace duo
