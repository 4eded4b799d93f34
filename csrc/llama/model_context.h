// A llama_context: made for a model's weights, and guarded while libllama computes with it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <llama.h>

#include "context_shape.h"
#include "cpu/cell_order.h"
#include "cpu/experts_ahead.h"
#include "cpu/page_reader.h"
#include "cpu/team_place.h"
#include "model_weights.h"
#include "text/lora_scales.h"

namespace duo {

struct context_closer {
    std::shared_ptr<llama_model> model;             // the context's
    bool                         is_broken = false; // memory ran out or a device failed in the middle of a pass
    bool                         on_device = false; // a device computes for it

    void operator()(llama_context * c) const;

    // Returns what a pass returns. path: the model's. what: the beginning of the sentence that an error has. Throws
    // duo::error; after memory ran out in the middle of a pass, libllama's context is not used any more.
    int32_t guarded(const std::string & path, const std::function<std::string()> & what,
                    const std::function<int32_t()> & pass);
};

using context_ptr = std::unique_ptr<llama_context, context_closer>;

// Throws duo::error: what could not be created, and which options to lower.
context_ptr new_context(const model_weights & w, const llama_context_params & params, const std::string & what,
                        const std::string & options);

// One thread at a time uses it. The weights must outlive it.
class model_context {
  public:
    // target: the context of the model that a draft head reads. own_attention: duo's kernels compute attention.
    // snapshots: of a recurrent state, if the options want some. Throws duo::error.
    model_context(const model_weights & w, llama_context * target, bool own_attention, bool snapshots);
    model_context(const model_context &)             = delete;
    model_context & operator=(const model_context &) = delete;

    [[nodiscard]] llama_context *       get() const { return context_.get(); }
    [[nodiscard]] llama_memory_t        memory() const { return llama_get_memory(get()); }
    [[nodiscard]] const context_shape & shape() const { return shape_; }
    [[nodiscard]] int32_t               n_pass() const { return int32_t(llama_n_ubatch(get())); } // rows at once
    [[nodiscard]] bool                  own_attention() const { return own_attention_; }

    // Texts are consecutive branches, equally many each.
    [[nodiscard]] int32_t text_of(int32_t branch) const {
        return branch / (shape_.n_branch / weights_.options.n_parallel);
    }

    // False: `stop` became true. nullptr: nothing stops it. Throws duo::error.
    // within: the order of the rows that share a position; empty: none do.
    bool evaluate(const llama_batch & batch, const std::atomic<bool> * stop, std::span<const int32_t> within = {});
    // nullptr: weights are not mapped.
    [[nodiscard]] cpu::experts_ahead * experts() { return experts_ ? &*experts_ : nullptr; }
    // The states that a head's encoder makes; valid until the next pass. Throws duo::error.
    const float * encode(const llama_batch & batch);
    void          use_threads(int32_t n);
    // Of the model's LoRA adapters, in the next passes; empty: those of the load. Throws duo::error.
    void use_scales(const lora_scales & scales);
    // The next pass begins with moving keys.
    void keys_move() { keys_move_ = true; }

    // With own attention. Whether duo's kernels computed all of it in the only pass so far: so many times.
    [[nodiscard]] bool all_own(int64_t n_done) const;
    // With own attention, after a pass: whether some layers have cells; whether these have values. With latent
    // attention (MLA), the keys are the values.
    [[nodiscard]] bool has_cells() const { return seen_.n_attentions > 0; }
    [[nodiscard]] bool has_values() const { return seen_.n_written != seen_.n_attentions; }

    // Where own attention finds the cells.
    [[nodiscard]] cpu::cell_order & cells() { return cells_; }

  private:
    void    create(llama_context_params params);
    void    call_back(llama_context_params & params);
    void    keep_hidden() const;
    void    tell_rows(const llama_batch & batch);
    int32_t guarded(int32_t n_tokens, const std::function<int32_t()> & pass, const std::function<std::string()> & what);

    // For error messages: what is created, and the option to lower.
    [[nodiscard]] std::string what() const;
    [[nodiscard]] std::string option() const;

    const model_weights &     weights_;
    context_shape             shape_;
    bool                      own_attention_;
    context_ptr               context_;
    const std::atomic<bool> * stop_      = nullptr; // of the running pass
    int32_t                   n_threads_ = 0;       // see use_threads()
    bool                      keys_move_ = false;
    cpu::cell_order::nodes    seen_;  // in the graphs so far
    cpu::cell_order           cells_; // of own attention
    cpu::team_placer          placer_;

    std::optional<cpu::page_reader>   pages_;   // of mapped weights
    std::optional<cpu::experts_ahead> experts_; // of these

    std::vector<cpu::experts_ahead::row> rows_; // scratch, of a pass
};

} // namespace duo
