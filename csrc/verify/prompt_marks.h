// Where a prompt's recurrent state is marked, so that a text with the same beginning need not read it again.
#pragma once

#include <cstddef>

#include "model/token_model.h"
#include "verify_slot.h"

namespace duo {

// Rows of the prompt up to the next place where its state is marked. SIZE_MAX: there is none.
[[nodiscard]] size_t n_to_mark(const token_model & model, const verify_slot & s);

// Marks the state if what the slot holds ends at such a place.
void mark_if_due(token_model & model, const verify_slot & s);

// Marks the state as it is now, if the model has one.
void mark(token_model & model, const verify_slot & s);

} // namespace duo
