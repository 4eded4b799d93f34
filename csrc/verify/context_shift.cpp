#include "context_shift.h"

namespace duo {

namespace {
// Perhaps: the model may refuse. A recurrent state knows of all tokens.
bool can_shift(const token_model & model) {
    return model.facts().undo == undo_kind::cells;
}
} // namespace

size_t n_before_shift(const token_model & model, const verify_slot & s) {
    return can_shift(model) && s.text.context().shift_due() ? s.n_missing() - 1 : 0;
}

void shift_context(token_model & model, target_cache & cache, verify_slot & s) {
    const int32_t from = s.text.context().n_first();
    const int32_t n    = s.text.context().n_next_shift();
    if (s.text.context().n_left_out() == 0) {
        cache.save_to_ram(s); // a later text may begin with all of it
    }
    if (can_shift(model) && model.shift(s.first_branch, from, n)) {
        s.cached.erase(s.cached.begin() + from, s.cached.begin() + from + n);
    } else if (size_t(from) < s.cached.size()) {
        cache.go_back(s, size_t(from));
    }
    s.text.shift();
}

} // namespace duo
