#include "hidden.h"

#include <algorithm>
#include <array>

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#else
#include <dlfcn.h>
#endif

#include "base/error.h"

namespace duo {

namespace {

// A function of the library that llama_decode is in. Other libraries of the process may have another libllama.
void * find(const char * name) {
#if defined(_WIN32)
    HMODULE library = nullptr;
    GetModuleHandleExA(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
                       reinterpret_cast<LPCSTR>(&llama_decode), &library);
    return library == nullptr ? nullptr : reinterpret_cast<void *>(GetProcAddress(library, name));
#else
    Dl_info at{};
    if (dladdr(reinterpret_cast<void *>(&llama_decode), &at) == 0 || at.dli_fname == nullptr) {
        return nullptr;
    }
    void * library = dlopen(at.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) {
        return nullptr;
    }
    void * f = dlsym(library, name);
    dlclose(library); // it stays loaded: this module is linked to it
    return f;
#endif
}

// mangled: its name in C++, by the Itanium ABI. A later libllama may have it in llama.h, with its plain name.
template <typename Function> void look_up(Function & f, const char * mangled, const char * plain) {
    void * found = find(mangled);
    found        = found == nullptr ? find(plain) : found;
    if (found == nullptr) {
        throw error(error_kind::bad_value,
                    std::string("this build of llama.cpp has no ") + plain +
                        ", which draft heads need; install the version that duo names, or use a draft model");
    }
    f = reinterpret_cast<Function>(found);
}

hidden_functions look_up_all() {
    hidden_functions f;
    look_up(f.keep_layer_input, "_Z30llama_set_embeddings_layer_inpP13llama_contextjb",
            "llama_set_embeddings_layer_inp");
    look_up(f.layer_input, "_Z30llama_get_embeddings_layer_inpP13llama_contextj", "llama_get_embeddings_layer_inp");
    look_up(f.keep_states, "_Z26llama_set_embeddings_nextnP13llama_contextbb", "llama_set_embeddings_nextn");
    look_up(f.states, "_Z26llama_get_embeddings_nextnP13llama_context", "llama_get_embeddings_nextn");
    look_up(f.use_nextn_layer, "_Z28llama_set_nextn_layer_offsetP13llama_contexti", "llama_set_nextn_layer_offset");
    look_up(f.target_layers, "_Z28llama_model_target_layer_idsPK11llama_model", "llama_model_target_layer_ids");
    look_up(f.n_target_layers, "_Z30llama_model_target_layer_ids_nPK11llama_model", "llama_model_target_layer_ids_n");
    return f;
}

// Architectures whose graphs name the inputs of their layers (t_layer_inp in src/models/). For others libllama aborts.
constexpr std::array keeping = {"llama",     "qwen3",    "qwen3moe",    "qwen3next",     "qwen35",     "qwen35moe",
                                "qwen4exp",  "gpt-oss",  "gemma4",      "minimax-m2",    "minimax-01", "lfm2",
                                "lfm2moe",   "mimo2",    "hunyuan_vl",  "hunyuan-dense", "nemotron_h", "nemotron_h_moe",
                                "deepseek4", "nanbeige", "bailingmoe3", "muse-glimmer"};

// Architectures whose graphs name the state after the last layer (t_h_nextn) and that have a graph of their MTP layers.
constexpr std::array predicting = {"bailingmoe3", "cohere2moe", "deepseek2", "deepseek32", "glm-dsa",   "glm4moe",
                                   "hy_v3",       "mimo2",      "qwen35",    "qwen35moe",  "qwen3next", "step35"};

} // namespace

const hidden_functions & hidden() {
    static const hidden_functions all = look_up_all();
    return all;
}

bool keeps_layer_inputs(const std::string & architecture) {
    return std::find(keeping.begin(), keeping.end(), architecture) != keeping.end();
}

bool runs_mtp(const std::string & architecture) {
    return std::find(predicting.begin(), predicting.end(), architecture) != predicting.end();
}

void check_feature_layers(const llama_model * target, const std::string & path, std::span<const int32_t> layers) {
    std::array<char, 128> name{};
    llama_model_meta_val_str(target, "general.architecture", name.data(), name.size());
    if (!keeps_layer_inputs(name.data())) {
        throw error(error_kind::bad_value, path + " is a " + name.data() + " model, and llama.cpp does not give " +
                                               "the hidden states of such models to a draft head; use a draft model");
    }
    const int32_t n_layer = llama_model_n_layer(target);
    for (const int32_t i : layers) {
        if (i < 0 || i >= n_layer) {
            throw error(error_kind::bad_value, "a draft head needs the input of layer " + std::to_string(i) + ", but " +
                                                   path + " has the layers 0 to " + std::to_string(n_layer - 1) +
                                                   "; use a head that was made for this target");
        }
    }
}

} // namespace duo
