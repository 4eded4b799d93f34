// Settings of the user that replace those of the model's file: header values and position encoding.
#pragma once

#include <vector>

#include <llama.h>

#include "model_options.h"

namespace duo {

// Ends with an empty key, as libllama expects. Empty if nothing is overridden.
std::vector<llama_model_kv_override> header_overrides(const model_options & opt);

void set_rope(llama_context_params & params, const model_options & opt);

} // namespace duo
