// How a model is loaded: file, devices, context, kernels, adapters.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cpu/team_place.h"

namespace duo {

// Requantises weights while they are packed for duo's kernels. ggml's names of types.
struct weight_packing {
    std::string              stored; // what they become; empty: nothing is requantised
    std::vector<std::string> types;  // of the file's weights on the CPU
};

// A file that has the weights packed: see packed_file.h.
struct packed_choice {
    std::string path;         // empty: weights are packed when they are read
    std::string source;       // what it must say of its model
    bool        check = true; // read it all, to find damage; also a packed file in place of the model's
};

// A file that makes rows of pictures (projector.h).
struct projector_options {
    std::string path;             // empty: the model sees nothing
    std::string device;           // that computes them; empty: the first GPU
    bool        offload   = true; // to that one, if there is one
    int32_t     n_threads = 1;    // on the CPU
    int32_t     min_rows  = -1;   // of a picture, where the model leaves a choice; -1: as the file says
    int32_t     max_rows  = -1;
};

struct model_options {
    std::string              path;
    std::vector<std::string> devices;                   // see resolve_devices
    int32_t                  n_gpu_layers = -1;         // < 0: all
    std::vector<float>       tensor_split;              // share of each device; empty: by free memory
    std::string              split_mode      = "layer"; // none, layer, row
    int32_t                  main_gpu        = 0;       // index in devices, for split_mode none
    int32_t                  n_ctx           = 0;       // tokens; 0: the model's own, but at most n_ctx_most
    int32_t                  n_ctx_most      = 0;       // 0: no limit
    int32_t                  n_batch         = 2048;    // rows in a decode
    int32_t                  n_ubatch        = 512;     // rows on the device at once
    int32_t                  n_parallel      = 1;       // texts at once
    int32_t                  n_contexts      = 1;       // the cache has room for so many texts of n_ctx tokens
    int32_t                  n_marks         = 4;       // states that a text's prompt may leave: see kept_state
    int32_t                  mark_step       = 0;       // tokens between two of them, at least
    int32_t                  n_threads       = 1;
    int32_t                  n_threads_batch = 1;
    std::string              flash_attn      = "auto"; // on, off, auto
    std::string              type_k          = "f16";  // ggml's name of the K cache type
    std::string              type_v          = "f16";
    std::string              load_mode       = "auto"; // auto, mmap, none, mlock, dio
    std::string              lazy_mode       = "auto"; // on, off, auto: embeddings of layers are read when needed
    bool                     vocab_only      = false;  // no weights and no context: the model only tokenizes
    bool                     offload_kqv     = true;   // a layer's cache and attention are where its weights are
    bool                     op_offload      = true;   // a GPU may compute prompts with weights of the CPU
    bool                     check_tensors   = false;  // no weight may be NaN or infinite
    bool                     host_buffers    = true;   // a GPU may give the memory for weights of the CPU
    bool                     repack          = true;   // weights may be packed for kernels
    bool                     special         = false;  // control tokens are part of the text
    std::vector<int32_t>     cpus;                     // CPUs of the worker's thread and its team; empty: any
    cpu::team_place          narrow_team;              // what is special about its team in passes of one row
    cpu::team_place          wide_team;                // the same in passes of several rows
    bool                     guesses = false;          // passes verify guesses: a recurrent state keeps snapshots
    bool                     strict  = false;          // same bits at every width: see model_decoder::decode
    bool                     mtp     = false;          // target: keep the state after the last layer, which an MTP
                                                       // head reads; draft: the file's MTP layers are the draft
    bool                     load_mtp = false;         // target: its own MTP layers are the draft
    std::vector<int32_t>     feature_layers;           // an EAGLE-3 or DFlash head reads their inputs; empty: none does
    std::vector<std::string> cpu_types;                // ggml's names: CPU weights of these types go to duo's kernels
    weight_packing           packing;                  // a draft's
    packed_choice            packed;
    int32_t                  draft_vocab = 0; // a draft's: see shortlist; 0: it computes all logits

    std::vector<std::pair<std::string, std::string>> override_tensors; // (pattern, memory): llama.cpp's -ot
    std::string rope_scaling;            // none, linear, yarn, longrope; empty: the model's own
    float       rope_freq_base   = 0.0f; // 0: the model's own
    float       rope_freq_scale  = 0.0f;
    int32_t     yarn_orig_ctx    = 0;
    float       yarn_ext_factor  = -1.0f; // < 0: the model's own
    float       yarn_attn_factor = -1.0f;
    float       yarn_beta_slow   = -1.0f;
    float       yarn_beta_fast   = -1.0f;

    using header_value = std::variant<bool, int64_t, double, std::string>;
    std::vector<std::pair<std::string, header_value>> kv_overrides; // in place of the file's header; below 128 bytes

    std::vector<std::pair<std::string, float>> loras;             // (file, scale); with them, stock kernels compute
    std::vector<std::pair<std::string, float>> control_vectors;   // (file, scale)
    int32_t                                    control_first = 0; // layers in which they are added; 0: from the first
    int32_t                                    control_last  = 0; // 0: to the last

    std::function<bool(float)> keep_loading; // called while weights are read, with the share read so far; false: stop
};

} // namespace duo
