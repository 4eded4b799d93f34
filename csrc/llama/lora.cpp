#include "lora.h"

#include <string>

#include "base/error.h"
#include "log.h"

namespace duo {

std::vector<llama_adapter_lora *> load_loras(llama_model * model, const model_options & opt) {
    std::vector<llama_adapter_lora *> all;
    for (const auto & [path, scale] : opt.loras) {
        log_clear_errors();
        llama_adapter_lora * adapter = llama_adapter_lora_init(model, path.c_str());
        if (adapter == nullptr) {
            throw error(error_kind::bad_value, "the LoRA adapter " + path + " could not be loaded for " + opt.path +
                                                   log_reason() + "; check the file");
        }
        if (llama_adapter_get_alora_n_invocation_tokens(adapter) > 0) {
            throw error(
                error_kind::bad_value,
                "the LoRA adapter " + path +
                    " takes effect only after certain tokens (aLoRA), which duo does not support; choose another");
        }
        all.push_back(adapter);
    }
    return all;
}

lora_scales loaded_scales(const model_options & opt) {
    lora_scales scales;
    for (const auto & [path, scale] : opt.loras) {
        scales.push_back(scale);
    }
    return scales;
}

// libllama prepares its graphs anew in the next pass, unless these are the scales that it has.
void use_loras(llama_context * context, std::vector<llama_adapter_lora *> adapters, lora_scales scales) {
    if (adapters.size() != scales.size()) {
        throw error(error_kind::bad_value, "there are " + std::to_string(adapters.size()) + " LoRA adapters and " +
                                               std::to_string(scales.size()) + " scales; give one for each");
    }
    if (!adapters.empty() && llama_set_adapters_lora(context, adapters.data(), adapters.size(), scales.data()) != 0) {
        throw error("libllama did not take the scales of the LoRA adapters");
    }
}

} // namespace duo
