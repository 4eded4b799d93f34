// Lets libllama read a model's file.
#pragma once

#include <llama.h>

#include "model_weights.h"

namespace duo {

// Sets w.model, and what w says of a packed file. Throws duo::error.
void read_model(model_weights & w, const llama_model_params & params);

} // namespace duo
