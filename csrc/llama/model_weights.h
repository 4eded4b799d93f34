// The weights of a model as they were loaded: where they are, what computes with them, and what their file says.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <llama.h>

#include "base/read_ahead.h"
#include "cpu/packed_weights.h"
#include "head_file.h"
#include "mapped_files.h"
#include "model_options.h"

namespace duo {

struct device_choice {
    std::vector<std::string>        names;
    std::vector<ggml_backend_dev_t> helpers;              // may compute prompts with the CPU's weights
    bool                            hold_weights = false; // some
};

struct kernel_choice {
    bool same_bits = false; // logits of the CPU are independent of the width of the pass
    bool attention = false; // duo's kernels may compute the attention of all layers
    bool stock     = false; // stock kernels compute some product, perhaps only a router's
    bool state     = false; // some layers are recurrent: stock kernels compute a part of them
    bool rounds    = false; // and round by how rows are divided into passes, whatever the kernels of the products
    bool extra     = false; // some weights may be in the CPU's extra buffers; a head's, with its target's

    int32_t     n_duo       = 0; // matrices for duo's kernels
    uint64_t    n_duo_bytes = 0; // of these, packed
    int32_t     n_cpu       = 0; // all matrices on the CPU
    std::string packed_as;       // the type that weights were requantised to; empty: they are the file's
    std::string output;          // the name of the output matrix, if duo's kernels compute it

    std::vector<std::string> stock_types; // of the matrices on the CPU that stock kernels compute

    [[nodiscard]] bool all_duo() const { return n_duo > 0 && n_duo == n_cpu && !state; }
};

// Does not change after loading. Contexts share it.
struct model_weights {
    model_options                       options;
    bool                                is_draft = false;
    std::optional<head_file>            head; // of a draft head
    std::shared_ptr<llama_model>        model;
    std::shared_ptr<const mapped_files> files; // that libllama has mapped; nullptr: none
    std::vector<llama_adapter_lora *>   loras; // the model's
    device_choice                       devices;
    kernel_choice                       kernels;
    std::string packed_file;     // where packed weights come from; empty: they were packed when they were read
    int32_t     n_from_file = 0; // number of weights that come from there
    std::shared_ptr<const cpu::packed_weights> mapped;          // these, if they stay in the file; nullptr: they do not
    std::shared_ptr<const read_ahead>          reading;         // brings them into memory; nullptr: nothing does
    bool                                       has_mtp = false; // the file has MTP layers that can be its draft
    int32_t     n_positions = 0; // that the file has vectors of, as GPT-2's; 0: it needs none
    std::string warning; // why duo's kernels or a packed file are not used although they were requested; or empty

    // Bytes of mapped weights that were asked for before their products, so far.
    [[nodiscard]] uint64_t n_read_ahead() const { return mapped ? mapped->n_wanted() : 0; }
    // A mapped file of which a page could not be read, so no pass since then is right. Empty: there is none.
    [[nodiscard]] std::string lost_file() const;
    // Throws duo::error: there is one.
    void                      check_files() const;
    [[nodiscard]] std::string description() const;
    [[nodiscard]] std::string meta(const std::string & key) const; // empty: absent
    [[nodiscard]] std::string architecture() const { return meta("general.architecture"); }
    [[nodiscard]] uint64_t    n_bytes() const { return llama_model_size(model.get()); }
    [[nodiscard]] int32_t     n_ctx_train() const { return llama_model_n_ctx_train(model.get()); }
    // Tokens of the context that the options ask for, as far as there are positions.
    [[nodiscard]] int32_t n_ctx() const;
    [[nodiscard]] int32_t n_layer() const { return is_mtp() ? 1 : llama_model_n_layer(model.get()); }

    [[nodiscard]] const llama_vocab * vocab() const { return llama_model_get_vocab(model.get()); }
    [[nodiscard]] int32_t             n_vocab() const { return llama_vocab_n_tokens(vocab()); }

    // Devices that hold weights.
    [[nodiscard]] std::vector<std::string> device_names() const;
    // Whether devices compute prompts with weights of the CPU; which.
    [[nodiscard]] bool                     helped() const { return kernels.n_cpu > 0 && !devices.helpers.empty(); }
    [[nodiscard]] std::vector<std::string> helper_names() const;

    // Whether logits are independent of the width of the pass: the user asked for it, or duo's kernels compute all
    // products.
    [[nodiscard]] bool same_bits() const { return kernels.same_bits && !kernels.rounds && !helped(); }

    // Recurrent or hybrid. MTP layers only attend.
    [[nodiscard]] bool keeps_state() const;

    // Of a draft head (head_file::name()); empty: it is another model.
    [[nodiscard]] std::string head_name() const { return head ? head->name() : ""; }
    [[nodiscard]] bool        is_mtp() const { return head && head->kind == head_kind::mtp; }
    [[nodiscard]] bool        is_block() const { return head && head->kind == head_kind::dflash; }

    // See token_model.
    [[nodiscard]] int32_t n_features() const;
    [[nodiscard]] int32_t n_inputs() const { return head ? head->n_inputs() : 0; }
    [[nodiscard]] int32_t n_state() const;
    [[nodiscard]] int32_t n_levels() const { return is_block() ? head->n_block - head->n_known : 1; }
};

} // namespace duo
