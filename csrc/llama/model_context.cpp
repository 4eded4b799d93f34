#include "model_context.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/error.h"
#include "control_vector.h"
#include "cpu/ggml_device.h"
#include "cpu/ggml_tiles.h"
#include "cpu/shortage.h"
#include "cpu/team.h"
#include "failed_check.h"
#include "hidden.h"
#include "log.h"
#include "lora.h"

namespace duo {

namespace {
std::atomic<bool> driver_failed_in_pass{false}; // in this process

// Of several sequences, of which libllama evaluates equally many rows together if they have recurrent states.
bool has_several(const llama_batch & batch) {
    for (int32_t i = 0; i < batch.n_tokens; ++i) {
        if (batch.n_seq_id[i] != 1 || batch.seq_id[i][0] != batch.seq_id[0][0]) {
            return true;
        }
    }
    return false;
}
} // namespace

// libllama's destructor waits for the devices. If one is lost, this throws there and would end the process. So such a
// context is never freed, nor is its model: the device may still read from it. Neither is one that is broken. After a
// driver's call has failed in a pass, no context of a device is: ggml-cuda may still count a graph that is being
// captured, and its destructor would wait for that for ever.
void context_closer::operator()(llama_context * c) const {
    try {
        if (!is_broken && !(on_device && driver_failed_in_pass)) {
            {
                const throwing_shortage checks;
                llama_synchronize(c);
            }
            llama_free(c);
            return;
        }
    } catch (const std::exception &) { // the device is lost
    }
    [[maybe_unused]] const auto * kept = std::make_unique<std::shared_ptr<llama_model>>(model).release();
}

int32_t context_closer::guarded(const std::string & path, const std::function<std::string()> & what,
                                const std::function<int32_t()> & pass) {
    if (is_broken) {
        throw error(error_kind::does_not_fit,
                    "memory ran out or a device failed while " + path + " was used; free memory, and load it again");
    }
    const throwing_shortage shortage;
    log_clear_errors();
    try {
        cpu::require_spare();
        return pass();
    } catch (const std::exception & e) {
        const failure why = failure_of(e);
        is_broken |= shortage.threw();
        if (shortage.threw() && why.kind != error_kind::does_not_fit) { // it was no lack of the machine's memory
            driver_failed_in_pass = true;
        }
        throw error(why.kind, what() + ": " + why.sentence);
    }
}

context_ptr new_context(const model_weights & w, const llama_context_params & params, const std::string & what,
                        const std::string & options) {
    const std::string could_not = what + " could not be created for " + w.options.path;
    context_ptr       made;
    made.get_deleter().model     = w.model;
    made.get_deleter().on_device = !w.devices.names.empty();
    log_clear_errors();
    try {
        const throwing_checks checks;
        made.reset(llama_init_from_model(w.model.get(), params));
    } catch (const std::exception & e) {
        throw error(error_kind::does_not_fit, could_not + ": " + e.what() + "; lower " + options);
    }
    if (!made) {
        throw error(error_kind::does_not_fit, could_not + log_reason() + "; lower " + options + " or free memory");
    }
    return made;
}

model_context::model_context(const model_weights & w, llama_context * target, bool own_attention, bool snapshots)
    : weights_(w), shape_(w, own_attention, snapshots), own_attention_(own_attention),
      placer_(w.options.narrow_team, w.options.wide_team) {
    llama_context_params params = context_params(w, shape_, own_attention);
    params.ctx_other            = w.head ? target : nullptr;
    call_back(params);
    if (w.mapped != nullptr) {
        pages_.emplace(w.mapped->pages());
        experts_.emplace(*pages_, w.mapped->pages());
    }
    create(params);
    keep_hidden();
    use_loras(get(), w.loras, lora_scales(w.loras.size(), 1.0f)); // the trial pass is to have room for all
    use_control_vectors(get(), w.model.get(), w.options);
}

void model_context::call_back(llama_context_params & params) {
    params.abort_callback = [](void * data) {
        const auto * self = static_cast<const model_context *>(data);
        return self->stop_ != nullptr && self->stop_->load(std::memory_order_relaxed);
    };
    params.abort_callback_data = this;
    if (own_attention_) {
        params.cb_eval = [](ggml_tensor * node, bool ask, void * data) {
            if (ask) {
                auto * self = static_cast<model_context *>(data);
                self->seen_.count(node);
                self->cells_.on_node(node);
            }
            return false;
        };
        params.cb_eval_user_data = this;
    }
}

std::string model_context::what() const {
    const model_options & opt = weights_.options;
    return "a context of " + std::to_string(shape_.n_ctx) + " tokens" +
           (opt.n_contexts > 1 ? " for each of " + std::to_string(opt.n_contexts) + " texts" : "");
}

std::string model_context::option() const {
    return std::string(weights_.is_draft ? "-cd/--ctx-size-draft" : "-c/--ctx-size") +
           (weights_.options.n_contexts > 1 ? " or -np/--parallel" : "");
}

void model_context::create(llama_context_params params) {
    const cpu::take_attention   attention(own_attention_);
    const cpu::offload_products offload(weights_.devices.helpers);
    context_ = new_context(weights_, params, what(), option());
    seen_    = {};
}

// Libllama keeps the hidden states that a head reads, and those that it makes.
void model_context::keep_hidden() const {
    if (weights_.is_block()) {
        llama_set_causal_attn(get(), weights_.head->causal);
    } else if (weights_.head) {
        hidden().keep_states(get(), true, true);
    }
    if (weights_.options.mtp && !weights_.is_draft) {
        hidden().keep_states(get(), true, false);
    }
    for (const int32_t i : weights_.options.feature_layers) {
        hidden().keep_layer_input(get(), uint32_t(i), true);
    }
}

// Calls libllama for a pass, waits for its end, and returns what libllama returned. what: the beginning of the sentence
// that an error has.
int32_t model_context::guarded(int32_t n_tokens, const std::function<int32_t()> & pass,
                               const std::function<std::string()> & what) {
    const model_options & opt  = weights_.options;
    const bool            wide = n_tokens > 1;
    const int32_t         n    = n_threads_ > 0 ? n_threads_ : wide ? opt.n_threads_batch : opt.n_threads;
    // Of a prompt in several parts, the last one may have a single row, for which libllama takes the other team.
    placer_.before_pass(wide, n_threads_ == 0 && n_tokens > n_pass() ? std::max(n, opt.n_threads) : n);
    if (weights_.kernels.extra) {
        cpu::restore_ggml_tiles(n);
    }
    try {
        return context_.get_deleter().guarded(opt.path, what, [&] {
            const int32_t rc = pass();
            llama_synchronize(get());
            return rc;
        });
    } catch (...) {
        stop_ = nullptr;
        throw;
    }
}

bool model_context::evaluate(const llama_batch & batch, const std::atomic<bool> * stop,
                             std::span<const int32_t> within) {
    const auto what = [&] {
        return "evaluating " + std::to_string(batch.n_tokens) + " tokens with " + weights_.options.path + " failed";
    };
    cells_.begin();
    for (int32_t i = 0; own_attention_ && i < batch.n_tokens; ++i) {
        cells_.add({.pos    = batch.pos[i],
                    .text   = text_of(batch.seq_id[i][0]),
                    .within = within.empty() ? 0 : within[size_t(i)]});
    }
    const cpu::take_attention   attention(own_attention_, &cells_);
    const cpu::offload_products offload(weights_.devices.helpers);
    const cpu::read_pages_ahead ahead(pages_ ? &*pages_ : nullptr, experts_ ? &*experts_ : nullptr);
    const cpu::team_size        unpacking(std::max(1, weights_.options.n_threads_batch));

    const auto pass = [&] {
        tell_rows(batch);
        return llama_decode(get(), batch);
    };
    weights_.check_files(); // so that a request does not take long to fail
    stop_            = stop;
    const int32_t rc = guarded(batch.n_tokens, pass, what);
    stop_            = nullptr;
    weights_.check_files();
    if (rc != 0 && rc != 2) {
        throw error(
            rc == 1 ? error_kind::context_full : error_kind::internal,
            what() + (rc == 1 ? ": the context of " + std::to_string(shape_.n_ctx) + " tokens is full" : log_reason()));
    }
    if (std::exchange(keys_move_, false) && log_reason().find("K-shift") != std::string::npos) {
        throw error(what() + ": libllama could not move the keys of a shifted context" + log_reason());
    }
    return rc == 0;
}

void model_context::tell_rows(const llama_batch & batch) {
    if (!experts_) {
        return;
    }
    rows_.clear();
    if (experts_->active()) {
        const bool knows = batch.token != nullptr && !(weights_.keeps_state() && has_several(batch));
        for (int32_t i = 0; i < batch.n_tokens; ++i) {
            rows_.push_back({.token  = knows ? batch.token[i] : no_token,
                             .output = batch.logits != nullptr && batch.logits[i] != 0});
        }
    }
    experts_->begin_pass(rows_);
}

const float * model_context::encode(const llama_batch & batch) {
    const auto    what   = [&] { return "reading hidden states with " + weights_.options.path + " failed"; };
    const int32_t rc     = guarded(batch.n_tokens, [&] { return llama_encode(get(), batch); }, what);
    const float * states = rc == 0 ? hidden().states(get()) : nullptr;
    weights_.check_files();
    if (states == nullptr) {
        throw error(what() + log_reason());
    }
    return states;
}

void model_context::use_threads(int32_t n) {
    if (n != n_threads_) {
        const model_options & opt = weights_.options;
        llama_set_n_threads(get(), n > 0 ? n : opt.n_threads, n > 0 ? n : opt.n_threads_batch);
        n_threads_ = n;
    }
}

void model_context::use_scales(const lora_scales & scales) {
    use_loras(get(), weights_.loras, scales.empty() ? loaded_scales(weights_.options) : scales);
}

// Layers of a hybrid model that do not attend have no cells.
bool model_context::all_own(int64_t n_done) const {
    return weights_.keeps_state() ? n_done == seen_.n_attentions && seen_.n_written == n_done * (has_values() ? 2 : 1)
                                  : n_done == weights_.n_layer();
}

} // namespace duo
