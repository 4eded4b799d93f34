// Hidden states of a pass. libllama exports the functions but declares them in a header that it does not install
// (src/llama-ext.h), so they are looked up in the loaded library.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <llama.h>

namespace duo {

struct hidden_functions {
    // The input of layer i, which is the output of layer i - 1. Switch it on before the context's first pass.
    void (*keep_layer_input)(llama_context * context, uint32_t i_layer, bool on) = nullptr;
    // Of all rows of the last llama_decode, in the caller's order: [rows][n_embd]. Valid until the next one.
    float * (*layer_input)(llama_context * context, uint32_t i_layer) = nullptr;

    // The state that a head's next row is made of. masked: of rows with an output only.
    void (*keep_states)(llama_context * context, bool on, bool masked) = nullptr;
    float * (*states)(llama_context * context)                         = nullptr; // [rows][n_embd], as above

    void (*use_nextn_layer)(llama_context * context, int32_t i) = nullptr; // of several MTP layers
    const int32_t * (*target_layers)(const llama_model * head)  = nullptr; // whose inputs a head reads
    uint32_t (*n_target_layers)(const llama_model * head)       = nullptr;
};

// Throws duo::error if this libllama does not have them.
const hidden_functions & hidden();

// Throws duo::error if a pass over the target cannot give the inputs of these layers; libllama would abort the process
// for most architectures that cannot.
void check_feature_layers(const llama_model * target, const std::string & path, std::span<const int32_t> layers);

// Whether targets of this architecture keep the inputs of their layers.
bool keeps_layer_inputs(const std::string & architecture);

// Whether libllama computes MTP layers of this architecture, and its targets keep the states that these read.
bool runs_mtp(const std::string & architecture);

} // namespace duo
