// What the target does with a text whose full context is shifted (text_context.h).
#pragma once

#include "model/token_model.h"
#include "target_cache.h"
#include "verify_slot.h"

namespace duo {

// Tokens that must be evaluated before the shift: all but the last one, because they see what is left out. 0: none, or
// the text's context is not full.
size_t n_before_shift(const token_model & model, const verify_slot & s);

// Nothing is missing for it. A cache that cannot be shifted is cut, and the tokens behind the gap are evaluated again.
// Throws duo::error.
void shift_context(token_model & model, target_cache & cache, verify_slot & s);

} // namespace duo
