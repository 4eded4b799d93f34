// A branch of a cache as bytes, in the form of llama.cpp's session files (llama_state_get_data): the architecture's
// name, then the memory. A single sequence (llama_state_seq_get_data) has another head.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kept_state.h"
#include "model_context.h"

namespace duo {

// state: the branch's, of recurrent or hybrid memory; or nullptr. can_rollback: the cache goes back to any position.
// Throws duo::error.
std::string save_branch(const model_weights & w, const model_context & context, int32_t branch, kept_state * state,
                        bool can_rollback);

// About how many bytes that would be, and at least the memory's.
int64_t branch_bytes(const model_weights & w, const model_context & context, int32_t branch, kept_state * state,
                     bool can_rollback);

// Throws duo::error and leaves the branch empty.
void restore_branch(const model_weights & w, model_context & context, int32_t branch, kept_state * state,
                    std::span<const char> saved);

} // namespace duo
