// Making the context of a loaded model, and finding out its capabilities.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <string>

#include "base/error.h"
#include "control_vector.h"
#include "cpu/ggml_device.h"
#include "failed_check.h"
#include "hidden.h"
#include "log.h"
#include "lora.h"
#include "memory.h"
#include "model.h"
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

// libllama's destructor waits for the devices. If one is lost, this throws there and would end the process. So such a
// context is never freed, nor is its model: the device may still read from it. Neither is one that is broken.
void context_closer::operator()(llama_context * c) const {
    try {
        if (!is_broken) {
            llama_synchronize(c);
            llama_free(c);
            return;
        }
    } catch (const std::exception &) { // the device is lost
    }
    [[maybe_unused]] const auto * kept = std::make_unique<std::shared_ptr<llama_model>>(model).release();
}

// llama.cpp's scheduler decides whether duo's device computes all attention, and architectures differ. The probe's pass
// shows it. If stock kernels compute some, the context is made again, without duo's attention and for narrow passes.
void llama_token_model::make_context() {
    own_attention_ =
        own_attention_ && !(keeps_state() && is_draft_); // libllama divides its batches, and their order is lost
    n_snapshots_ = opt_.guesses && !is_draft_ ? n_snapshots_most : 0;
    create_context();
    if (n_snapshots_ > 0 && llama_n_rs_seq(context_.get()) == 0) { // the architecture has none
        n_snapshots_ = 0;
        context_.reset();
        create_context();
    }
    const int64_t n = cpu::take_attention::n_done();
    probed_         = {};
    probe_rollback();
    if (own_attention_ && !all_own(int32_t(cpu::take_attention::n_done() - n))) {
        own_attention_ = false;
        context_.reset(); // frees the memory for the next one
        create_context();
        probe_rollback();
    }
    // A soft cap would make numbers of the -inf of other tokens.
    const std::string cap   = meta(meta("general.architecture") + ".final_logit_softcapping");
    const bool        lists = opt_.draft_vocab > 0 && opt_.draft_vocab < llama_vocab_n_tokens(vocab()) &&
                       (cap.empty() || std::strtof(cap.c_str(), nullptr) == 0.0f);
    if (is_draft_ && !head_ && lists && !duo_output_.empty()) {
        shortlist_.emplace(vocab(), opt_.draft_vocab, duo_output_);
        n_listed_ = shortlist_->n_tokens();
    }
}

// Layers of a hybrid model that do not attend have no cells.
bool llama_token_model::all_own(int32_t n_done) const {
    return keeps_state() ? n_done == probed_.n_attentions && probed_.n_written == n_done * (has_values() ? 2 : 1)
                         : n_done == n_layer();
}

void llama_token_model::create_context() {
    n_ctx_   = opt_.n_ctx > 0        ? opt_.n_ctx
               : opt_.n_ctx_most > 0 ? std::min(n_ctx_train(), opt_.n_ctx_most)
                                     : n_ctx_train();
    n_batch_ = std::min(opt_.n_batch, n_ctx_);
    if (!opt_.feature_layers.empty()) {
        check_feature_layers(model_.get(), opt_.path, opt_.feature_layers);
    }
    n_batch_ = n_features() > 0 ? std::min(n_batch_, n_batch_features) : n_batch_;

    n_batch_ = head_ ? std::min(n_batch_, n_batch_head) : n_batch_;
    if (is_block()) { // whatever fits the context, a block must fit
        n_batch_ = std::clamp(opt_.n_parallel * (n_levels() + 1), n_batch_head, n_batch_blocks);
    }

    // Recurrent memory needs a state per branch, and cannot go back to any position.
    const bool one = keeps_state();
    // A PLaMo-2 graph of several sequences writes their states to the wrong place (models/plamo2.cpp).
    one_sequence_ = meta("general.architecture") == "plamo2";
    if (one_sequence_ && is_draft_ && opt_.n_parallel > 1) {
        throw error(error_kind::bad_value,
                    opt_.path +
                        " can draft for one text at a time only; leave out -np/--parallel, or take another draft");
    }
    if (opt_.n_parallel > n_batch_) { // libllama would end the process
        throw error(error_kind::bad_value, "a pass of " + std::to_string(n_batch_) + " rows is too small for " +
                                               std::to_string(opt_.n_parallel) +
                                               " texts; lower -np/--parallel, or raise -b/--batch-size and " +
                                               (is_draft_ ? "-cd/--ctx-size-draft" : "-c/--ctx-size"));
    }
    // libllama reserves an output for each branch.
    const int32_t n_most = helped() ? n_branch_helped : n_branch_most;
    n_branch_            = !one ? opt_.n_parallel * std::max(1, std::min(n_most, n_batch_) / opt_.n_parallel)
                           : is_draft_ && !one_sequence_ ? std::min(std::max(n_branch_state, 4 * opt_.n_parallel), n_batch_)
                                                         : opt_.n_parallel;

    const bool           all_duo  = n_duo_products_ > 0 && n_duo_products_ == n_cpu_products_;
    const int32_t        n_widest = on_device_ ? n_ubatch_strict_device : all_duo ? n_ubatch_duo : n_ubatch_strict;
    llama_context_params params   = llama_context_default_params();
    // One more cell for the extra row of a strict pass, after the last position. A tree's nodes share positions.
    params.n_ctx      = uint32_t(n_ctx_ * opt_.n_contexts + (is_draft_ ? n_spare_draft : one ? 0 : n_branch_) + 1);
    params.n_batch    = uint32_t(n_batch_) + 1;
    const bool narrow = same_bits_ && !(own_attention_ && all_duo);
    params.n_ubatch   = uint32_t(narrow ? std::clamp(opt_.n_ubatch, 2, n_widest) : opt_.n_ubatch);
    // The last rows of a sequence stay in one pass, as many as there are snapshots and one more (split_equal()).
    n_snapshots_      = one ? std::clamp(int32_t(std::min(params.n_ubatch, params.n_batch)) - 2, 0, n_snapshots_) : 0;
    const bool spare  = one && !is_draft_ && n_snapshots_ == 0;
    params.n_rs_seq   = uint32_t(n_snapshots_);
    params.n_seq_max  = uint32_t(n_branch_ * (spare ? 2 : 1));
    params.kv_unified = true; // branches share cells
    params.n_threads  = opt_.n_threads;
    params.n_threads_batch = opt_.n_threads_batch;
    params.flash_attn_type =
        flash_attn_type((same_bits_ || own_attention_) && opt_.flash_attn == "auto" ? "on" : opt_.flash_attn);
    params.type_k      = cache_type(opt_.type_k, is_draft_ ? "-ctkd" : "-ctk");
    params.type_v      = cache_type(opt_.type_v, is_draft_ ? "-ctvd" : "-ctv");
    params.no_perf     = true;
    params.offload_kqv = opt_.offload_kqv;
    params.op_offload  = opt_.op_offload;
    if (head_) {
        params.ctx_type  = is_mtp() ? LLAMA_CONTEXT_TYPE_MTP : LLAMA_CONTEXT_TYPE_DEFAULT;
        params.n_ubatch  = params.n_batch; // its encoder takes all rows at once
        params.ctx_other = target_ == nullptr ? nullptr : target_->context_.get();
    }
    set_rope(params, opt_);
    params.abort_callback = [](void * data) {
        const auto * self = static_cast<const llama_token_model *>(data);
        return self->stop_ != nullptr && self->stop_->load(std::memory_order_relaxed);
    };
    params.abort_callback_data = this;
    if (own_attention_) {
        params.cb_eval = [](ggml_tensor * node, bool ask, void * data) {
            if (ask) {
                auto * self = static_cast<llama_token_model *>(data);
                self->probed_.count(node);
                self->cells_.on_node(node);
            }
            return false;
        };
        params.cb_eval_user_data = this;
    }

    const std::string option = std::string(is_draft_ ? "-cd/--ctx-size-draft" : "-c/--ctx-size") +
                               (opt_.n_contexts > 1 ? " or -np/--parallel" : "");
    const std::string what = "a context of " + std::to_string(n_ctx_) + " tokens" +
                             (opt_.n_contexts > 1 ? " for each of " + std::to_string(opt_.n_contexts) + " texts" : "");
    const uint64_t n_cache =
        cache_bytes(model_.get(), meta("general.architecture"), n_layer(), params.n_ctx,
                    device_names_.empty() || !opt_.offload_kqv ? 0 : opt_.n_gpu_layers, params.type_k, params.type_v);
    if (const uint64_t n_free = memory_available(); n_cache > n_free) {
        throw error(error_kind::does_not_fit, what + " needs " + std::to_string(n_cache >> 20) +
                                                  " MiB for its cache and " + std::to_string(n_free >> 20) +
                                                  " MiB are free; lower " + option);
    }

    const cpu::take_attention   attention(own_attention_);
    const cpu::offload_products offload(helpers_);
    log_clear_errors();
    try {
        const throwing_checks checks;
        context_.get_deleter().model = model_;
        context_.reset(llama_init_from_model(model_.get(), params));
    } catch (const std::exception & e) {
        throw error(error_kind::does_not_fit,
                    what + " could not be created for " + opt_.path + ": " + e.what() + "; lower " + option);
    }
    if (!context_) {
        throw error(error_kind::does_not_fit, what + " could not be created for " + opt_.path + log_reason() +
                                                  "; lower " + option + " or free memory");
    }
    if (is_block()) {
        llama_set_causal_attn(context_.get(), head_->causal);
    } else if (head_) {
        hidden().keep_states(context_.get(), true, true);
    }
    if (opt_.mtp && !is_draft_) {
        hidden().keep_states(context_.get(), true, false);
    }
    for (const int32_t i : opt_.feature_layers) {
        hidden().keep_layer_input(context_.get(), uint32_t(i), true);
    }
    states_.clear();
    for (int32_t i = 0; one && !is_draft_ && i < n_branch_; ++i) {
        states_.emplace_back(context_.get(), i, spare ? n_branch_ + i : -1);
    }
    use_loras(context_.get(), loras_, opt_);
    use_control_vectors(context_.get(), model_.get(), opt_);
    const size_t n = size_t(n_batch_) + 1;
    token_.resize(n);
    pos_.resize(n * n_pos_parts);
    n_seq_.assign(n, 1);
    seq_.resize(size_t(n_branch_));
    std::iota(seq_.begin(), seq_.end(), 0);
    seq_of_.assign(n, seq_.data());
    output_.resize(n);
    state_of_.resize(n * size_t(n_state()));
}

// Decodes two tokens and tries to remove one (like common_context_can_seq_rm).
void llama_token_model::probe_rollback() {
    const bool one = keeps_state();
    can_rollback_  = !one; // see kept_state.h
    const std::atomic<bool> go{false};
    const token_id          t = std::min(1, n_vocab_ - 1);
    const std::array        rows{row{.token = t, .pos = 0}, row{.token = t, .pos = 1, .output = true}};
    if (n_batch_ >= 2 && decode(rows, go) == decode_status::ok && !one) {
        can_rollback_ = llama_memory_seq_rm(llama_get_memory(context_.get()), 0, 1, -1);
    }
    llama_memory_clear(llama_get_memory(context_.get()), false);
    for (kept_state & s : states_) {
        s.forget();
    }
    for (int32_t i = 0; !one && !can_rollback_ && !is_draft_ && i < n_branch_; ++i) {
        states_.emplace_back(context_.get(), i, -1); // DeepSeek-V4's: no guesses
    }
}

} // namespace duo
