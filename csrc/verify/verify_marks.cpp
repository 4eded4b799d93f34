// Where a prompt's recurrent state is marked, so that a text with the same beginning need not read it again.
#include <algorithm>

#include "verify_worker.h"

namespace duo {

namespace {
// A recurrent state is marked every so many tokens of a prompt, and so many before its end: the next turn of a chat
// probably begins like this one, but without what asked for the answer. A caller may know another such place.
constexpr size_t n_mark_every = 1024;
constexpr size_t n_mark_tail  = 16;
constexpr size_t n_least      = 64; // missing rows of a prompt that is marked by itself
} // namespace

// Rows of the prompt up to the next place where its state is marked. SIZE_MAX: there is none.
size_t verify_worker::n_to_mark(const verify_slot & s) const {
    const size_t n = s.text.tokens().size();
    if (model_.undo() == undo_kind::cells || s.text.stats().n_passes > 0) {
        return SIZE_MAX;
    }
    const auto asked = size_t(s.text.req().n_mark);
    size_t     next  = asked > s.cached.size() + 1 && asked < n ? asked : SIZE_MAX;
    if (s.n_missing() >= n_least) {
        next = std::min({next, s.cached.size() / n_mark_every * n_mark_every + n_mark_every, n - n_mark_tail});
    }
    if (next == SIZE_MAX) {
        return next;
    }
    return next > s.cached.size() + 1 ? next - s.cached.size() : SIZE_MAX; // the model might not keep a single row
}

void verify_worker::mark_state(const verify_slot & s) {
    const size_t n = s.cached.size();
    if (n % n_mark_every == 0 || n + n_mark_tail == s.text.tokens().size() || n == size_t(s.text.req().n_mark)) {
        mark(s);
    }
}

void verify_worker::mark(const verify_slot & s) {
    if (model_.undo() != undo_kind::cells && !s.cached.empty()) {
        model_.mark(s.first_branch);
    }
}

} // namespace duo
