// How large the context of a model is: positions, rows, branches and snapshots of a recurrent state.
#pragma once

#include <cstdint>

#include <llama.h>

#include "model_weights.h"

namespace duo {

struct context_shape {
    // own_attention: duo's kernels compute the attention of all layers. snapshots: false if the architecture has none.
    // Throws duo::error if the options do not go together.
    context_shape(const model_weights & w, bool own_attention, bool snapshots);

    int32_t n_ctx        = 0;
    int32_t n_batch      = 0;
    int32_t n_ubatch     = 0;
    int32_t n_branch     = 1;
    int32_t n_cells      = 0;
    int32_t n_snapshots  = 0;     // of a recurrent state
    bool    spare_states = false; // each branch has a second sequence, for its state from before a pass (kept_state)
    bool    one_sequence = false; // a pass cannot have rows of several texts

  private:
    void choose_batch(const model_weights & w);
    void choose_branches(const model_weights & w);
};

// libllama's parameters for such a context, but for its callbacks. Throws duo::error for an unknown type of the cache.
llama_context_params context_params(const model_weights & w, const context_shape & shape, bool own_attention);

} // namespace duo
