// The projectors of a target and of its draft.
#pragma once

#include <memory>

#include "model.h"

namespace duo {

// Null: the model sees nothing. Throws duo::error.
std::shared_ptr<projector> load_projector(const projector_options & opt, const model_weights & model);

// From then on the target's prompts are read for the draft as well. target: null: it is elsewhere. translated: the
// draft has another vocabulary. Throws duo::error: the file cannot be loaded, or this draft cannot see.
std::shared_ptr<projector> load_draft_projector(const projector_options & opt, const model_weights & draft,
                                                const llama_token_model * target, bool translated);

} // namespace duo
