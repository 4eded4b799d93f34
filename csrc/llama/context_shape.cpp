#include "context_shape.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "hidden.h"
#include "overrides.h"

namespace duo {

namespace {

// Rows in a strict pass: 2 to 16 give the same bits (measured for F16, BF16, Q8_0, Q4_0, Q4_K, Q6_K).
constexpr int32_t n_ubatch_strict = 16;
// The same on a device: ggml-vulkan and ggml-cuda have a kernel for up to 8 rows and others for more.
constexpr int32_t n_ubatch_strict_device = 8;
// Snapshots of a recurrent state, and thus guesses in a pass. Each is as large as the state.
constexpr int32_t n_snapshots_most = 8;
// Branches of a draft with a recurrent state, each with a state of its own.
constexpr int32_t n_branch_state = 16;
// Branches of the cache: enough for a tree of 64 nodes; llama.cpp takes up to 256 (LLAMA_MAX_SEQ).
constexpr int32_t n_branch_most = 64;
// libllama tries flash attention with a row for each branch. If a device took so many, because prompts are computed
// there, flash attention would be off for the CPU's layers.
constexpr int32_t n_branch_helped = 31;
// Extra cells of the draft's cache, for nodes that are not (yet) text.
constexpr int32_t n_spare_draft = 512;
// libllama reserves a row of logits for each row that a draft head reads at once.
constexpr int32_t n_batch_head = 64;
// And for each row of several texts' blocks.
constexpr int32_t n_batch_blocks = 256;
// libllama reserves memory for the hidden states of so many rows: 25 MB for each layer of a model of 8 B parameters.
constexpr int32_t n_batch_features = 512;
// For duo's products with stock attention, which takes another path from 64 rows on (ggml-cpu/ops.cpp).
constexpr int32_t n_ubatch_duo = 63;

ggml_type cache_type(const std::string & name, const char * option) {
    static const std::array types = {GGML_TYPE_F32,  GGML_TYPE_F16,    GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0,
                                     GGML_TYPE_Q4_1, GGML_TYPE_IQ4_NL, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1};
    std::string             known;
    for (const ggml_type t : types) {
        if (name == ggml_type_name(t)) {
            return t;
        }
        known += (known.empty() ? "" : ", ") + std::string(ggml_type_name(t));
    }
    throw error(error_kind::bad_value, std::string(option) + " " + name + " is not a cache type; choose from " + known);
}

llama_flash_attn_type flash_attn_type(const std::string & name) {
    return name == "on"    ? LLAMA_FLASH_ATTN_TYPE_ENABLED
           : name == "off" ? LLAMA_FLASH_ATTN_TYPE_DISABLED
                           : LLAMA_FLASH_ATTN_TYPE_AUTO;
}

} // namespace

context_shape::context_shape(const model_weights & w, bool own_attention, bool snapshots) {
    const model_options & opt = w.options;
    n_ctx                     = w.n_ctx();
    choose_batch(w);
    choose_branches(w);

    const bool    all_duo  = w.kernels.all_duo();
    const int32_t n_widest = w.devices.hold_weights ? n_ubatch_strict_device : all_duo ? n_ubatch_duo : n_ubatch_strict;
    const bool    narrow   = w.kernels.same_bits && !(own_attention && all_duo);
    n_ubatch               = narrow ? std::clamp(opt.n_ubatch, 2, n_widest) : opt.n_ubatch;
    // Recurrent memory needs a state per branch, and cannot go back to any position. The last rows of a sequence stay
    // in one pass, as many as there are snapshots and one more (split_equal()).
    const bool state = w.keeps_state();
    if (state && snapshots && opt.guesses && !w.is_draft) {
        n_snapshots = std::clamp(std::min(n_ubatch, n_batch + 1) - 2, 0, n_snapshots_most);
    }
    spare_states = state && !w.is_draft && n_snapshots == 0;
    // One more cell for the extra row of a strict pass, after the last position. A tree's nodes share positions.
    const int64_t n_all = int64_t(n_ctx) * opt.n_contexts + (w.is_draft ? n_spare_draft : state ? 0 : n_branch) + 1;
    if (n_all > INT32_MAX) {
        throw error(error_kind::does_not_fit, "contexts of " + std::to_string(n_ctx) + " tokens for " +
                                                  std::to_string(opt.n_contexts) + " texts are more than " +
                                                  std::to_string(INT32_MAX) + " cells; lower " +
                                                  (w.is_draft ? "-cd/--ctx-size-draft" : "-c/--ctx-size"));
    }
    n_cells = int32_t(n_all);
    if (w.head) {
        n_ubatch = n_batch + 1; // its encoder takes all rows at once
    }
}

void context_shape::choose_batch(const model_weights & w) {
    n_batch = std::min(w.options.n_batch, n_ctx);
    if (!w.options.feature_layers.empty()) {
        check_feature_layers(w.model.get(), w.options.path, w.options.feature_layers);
    }
    n_batch = w.n_features() > 0 ? std::min(n_batch, n_batch_features) : n_batch;
    n_batch = w.head ? std::min(n_batch, n_batch_head) : n_batch;
    if (w.is_block()) { // whatever fits the context, a block must fit
        n_batch = std::clamp(w.options.n_parallel * (w.n_levels() + 1), n_batch_head, n_batch_blocks);
    }
}

void context_shape::choose_branches(const model_weights & w) {
    const int32_t n_texts = w.options.n_parallel;
    // A PLaMo-2 graph of several sequences writes their states to the wrong place (models/plamo2.cpp).
    one_sequence = w.architecture() == "plamo2";
    if (one_sequence && w.is_draft && n_texts > 1) {
        throw error(error_kind::bad_value,
                    w.options.path +
                        " can draft for one text at a time only; leave out -np/--parallel, or take another draft");
    }
    if (n_texts > n_batch) { // libllama would end the process
        throw error(error_kind::bad_value, "a pass of " + std::to_string(n_batch) + " rows is too small for " +
                                               std::to_string(n_texts) +
                                               " texts; lower -np/--parallel, or raise -b/--batch-size and " +
                                               (w.is_draft ? "-cd/--ctx-size-draft" : "-c/--ctx-size"));
    }
    // libllama reserves an output for each branch.
    const int32_t n_most = w.helped() ? n_branch_helped : n_branch_most;
    n_branch             = !w.keeps_state()              ? n_texts * std::max(1, std::min(n_most, n_batch) / n_texts)
                           : w.is_draft && !one_sequence ? std::min(std::max(n_branch_state, 4 * n_texts), n_batch)
                                                         : n_texts;
}

llama_context_params context_params(const model_weights & w, const context_shape & shape, bool own_attention) {
    const model_options & opt    = w.options;
    llama_context_params  params = llama_context_default_params();
    params.n_ctx                 = uint32_t(shape.n_cells);
    params.n_batch               = uint32_t(shape.n_batch) + 1;
    params.n_ubatch              = uint32_t(shape.n_ubatch);
    params.n_rs_seq              = uint32_t(shape.n_snapshots);
    params.n_seq_max             = uint32_t(shape.n_branch * (shape.spare_states ? 2 : 1));
    params.kv_unified            = true; // branches share cells
    params.n_threads             = opt.n_threads;
    params.n_threads_batch       = opt.n_threads_batch;
    const bool flash             = (w.kernels.same_bits || own_attention) && opt.flash_attn == "auto";
    params.flash_attn_type       = flash_attn_type(flash ? "on" : opt.flash_attn);
    params.type_k                = cache_type(opt.type_k, w.is_draft ? "-ctkd" : "-ctk");
    params.type_v                = cache_type(opt.type_v, w.is_draft ? "-ctvd" : "-ctv");
    params.no_perf               = true;
    params.offload_kqv           = opt.offload_kqv;
    params.op_offload            = opt.op_offload;
    params.ctx_type              = w.is_mtp() ? LLAMA_CONTEXT_TYPE_MTP : LLAMA_CONTEXT_TYPE_DEFAULT;
    set_rope(params, opt);
    return params;
}

} // namespace duo
