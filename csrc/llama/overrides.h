// What the user says in place of the model's file: values of its header, and position encoding.
#pragma once

#include <vector>

#include <llama.h>

#include "model.h"

namespace duo {

// For libllama, which reads up to an empty key. Empty: nothing is overridden.
std::vector<llama_model_kv_override> header_overrides(const model_options & opt);

void set_rope(llama_context_params & params, const model_options & opt);

} // namespace duo
