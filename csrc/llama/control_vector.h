// Control vectors: a direction for each layer, which is added to the layer's output (Zou et al. 2023, Representation
// Engineering; files as llama.cpp's cvector-generator and repeng write them).
#pragma once

#include <llama.h>

#include "model_options.h"

namespace duo {

// From now on the context adds the vectors of the options, each times its scale, to the outputs of the layers in their
// range. Throws duo::error.
void use_control_vectors(llama_context * context, const llama_model * model, const model_options & opt);

} // namespace duo
