#include "overrides.h"

#include <cstdint>
#include <string>
#include <variant>

namespace duo {

namespace {

llama_rope_scaling_type rope_scaling(const std::string & name) {
    return name == "none"       ? LLAMA_ROPE_SCALING_TYPE_NONE
           : name == "linear"   ? LLAMA_ROPE_SCALING_TYPE_LINEAR
           : name == "yarn"     ? LLAMA_ROPE_SCALING_TYPE_YARN
           : name == "longrope" ? LLAMA_ROPE_SCALING_TYPE_LONGROPE
                                : LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED;
}

} // namespace

std::vector<llama_model_kv_override> header_overrides(const model_options & opt) {
    std::vector<llama_model_kv_override> all;
    for (const auto & [key, value] : opt.kv_overrides) {
        llama_model_kv_override x{};
        key.copy(x.key, sizeof(x.key) - 1);
        if (const auto * b = std::get_if<bool>(&value)) {
            x.tag      = LLAMA_KV_OVERRIDE_TYPE_BOOL;
            x.val_bool = *b;
        } else if (const auto * i = std::get_if<int64_t>(&value)) {
            x.tag     = LLAMA_KV_OVERRIDE_TYPE_INT;
            x.val_i64 = *i;
        } else if (const auto * f = std::get_if<double>(&value)) {
            x.tag     = LLAMA_KV_OVERRIDE_TYPE_FLOAT;
            x.val_f64 = *f;
        } else {
            x.tag = LLAMA_KV_OVERRIDE_TYPE_STR;
            std::get<std::string>(value).copy(x.val_str, sizeof(x.val_str) - 1);
        }
        all.push_back(x);
    }
    if (!all.empty()) {
        all.push_back({});
    }
    return all;
}

void set_rope(llama_context_params & params, const model_options & opt) {
    params.rope_scaling_type = rope_scaling(opt.rope_scaling);
    params.rope_freq_base    = opt.rope_freq_base;
    params.rope_freq_scale   = opt.rope_freq_scale;
    params.yarn_orig_ctx     = uint32_t(opt.yarn_orig_ctx);
    params.yarn_ext_factor   = opt.yarn_ext_factor;
    params.yarn_attn_factor  = opt.yarn_attn_factor;
    params.yarn_beta_slow    = opt.yarn_beta_slow;
    params.yarn_beta_fast    = opt.yarn_beta_fast;
}

} // namespace duo
