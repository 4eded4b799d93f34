#include "prompt_marks.h"

#include <algorithm>
#include <cstdint>

namespace duo {

namespace {
// A recurrent state is marked every so many tokens of a prompt, and so many before its end: the next turn of a chat
// probably begins like this one, but without what asked for the answer. A caller may know another such place.
constexpr size_t n_mark_every    = 1024;
constexpr size_t n_mark_tail     = 16;
constexpr size_t n_missing_least = 64; // missing rows of a prompt that is marked by itself
} // namespace

size_t n_to_mark(const token_model & model, const verify_slot & s) {
    const size_t n = s.text.context().tokens().size();
    if (model.facts().undo == undo_kind::cells || s.text.req().stats.n_passes > 0) {
        return SIZE_MAX;
    }
    const auto asked = size_t(s.text.req().n_mark);
    size_t     next  = asked > s.cached.size() + 1 && asked < n ? asked : SIZE_MAX;
    if (s.n_missing() >= n_missing_least) {
        next = std::min({next, s.cached.size() / n_mark_every * n_mark_every + n_mark_every, n - n_mark_tail});
    }
    if (next == SIZE_MAX) {
        return next;
    }
    return next > s.cached.size() + 1 ? next - s.cached.size() : SIZE_MAX; // the model might not keep a single row
}

void mark_if_due(token_model & model, const verify_slot & s) {
    const size_t n = s.cached.size();
    if (n % n_mark_every == 0 || n + n_mark_tail == s.text.context().tokens().size() ||
        n == size_t(s.text.req().n_mark)) {
        mark(model, s);
    }
}

void mark(token_model & model, const verify_slot & s) {
    if (model.facts().undo != undo_kind::cells && !s.cached.empty()) {
        model.mark(s.first_branch);
    }
}

} // namespace duo
