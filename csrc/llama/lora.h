// LoRA adapters (Hu et al. 2021): small matrices that are added to the products of a model's weights.
#pragma once

#include <vector>

#include <llama.h>

#include "model_options.h"
#include "text/lora_scales.h"

namespace duo {

// The adapters that the options name; the model frees them. Throws duo::error.
std::vector<llama_adapter_lora *> load_loras(llama_model * model, const model_options & opt);

[[nodiscard]] lora_scales loaded_scales(const model_options & opt);

// From now on the context computes with them. One whose scale is 0 costs nothing. Throws duo::error.
void use_loras(llama_context * context, std::vector<llama_adapter_lora *> adapters, lora_scales scales);

} // namespace duo
