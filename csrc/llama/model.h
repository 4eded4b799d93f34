// token_model on libllama: one model, one context, its devices.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <llama.h>

#include "cpu/cell_order.h"
#include "head_file.h"
#include "kept_state.h"
#include "model/token_model.h"
#include "model_options.h"
#include "sampler.h"
#include "shortlist.h"

namespace duo {

struct context_closer {
    std::shared_ptr<llama_model> model;             // the context's
    bool                         is_broken = false; // memory ran out in the middle of a pass

    void operator()(llama_context * c) const;
};

// One thread at a time uses it. Only the vocabulary may be read by any thread.
class llama_token_model : public token_model {
  public:
    // Loads a model. is_draft: candidates() returns log-probabilities. with_context false: only weights and vocabulary,
    // for others to share. target: of a draft head that has no embedding or output of its own; it must outlive this
    // model. Throws duo::error.
    llama_token_model(const model_options & opt, bool is_draft, bool with_context = true,
                      const llama_token_model * target = nullptr);
    llama_token_model(const llama_token_model &)             = delete;
    llama_token_model & operator=(const llama_token_model &) = delete;

    // Another model with the same weights and a context of its own. Throws duo::error.
    [[nodiscard]] llama_token_model with_new_context() const { return {shared_weights{}, *this}; }

    // The MTP layers of a target that was loaded with load_mtp, as its draft. opt: of the draft; what is about weights
    // is the target's. Throws duo::error.
    llama_token_model(const model_options & opt, const llama_token_model & target);

    int32_t n_ctx() const override { return n_ctx_; }
    int32_t n_batch() const override { return n_batch_; }
    int32_t n_branch() const override { return n_branch_; }
    int32_t n_cells() const override { return int32_t(llama_n_ctx(context_.get())) - 1; }
    int32_t n_vocab() const override { return n_vocab_; }

    // Duo's kernels add in one order at any width. Stock kernels add a single row's products in a different order, but
    // use one order for all widths from 2 to 16; stock attention does so up to 63. If bits must be the same, the stock
    // parts limit the width of passes.
    decode_status decode(std::span<const row> rows, const std::atomic<bool> & stop) override;

    void             use_threads(int32_t n) override;
    int32_t          candidates(int32_t i_row, const sampling_params & sampling, std::span<const token_id> text,
                                std::span<candidate> out) override;
    void             chances(int32_t i_row, const sampling_params & sampling, std::span<const token_id> text,
                             std::vector<candidate> & out) override;
    std::span<float> row_logits(int32_t i_row) override { return {logits_of(i_row), size_t(n_vocab_)}; }
    float            logprobs(int32_t i_row, token_id token, std::span<candidate> out) override;
    int32_t          n_features() const override;
    void             features(int32_t i_row, std::span<float> out) const override;
    int32_t          n_inputs() const override;
    int32_t          n_state() const override;
    int32_t          n_levels() const override;
    void             encode(std::span<const float> features, std::span<float> out) override;
    void             state(int32_t i_row, std::span<float> out) const override;
    bool             rollback(int32_t branch, int32_t pos) override;
    int32_t          take_back(int32_t branch, int32_t pos) override;
    undo_kind        undo() const override;
    int32_t          n_undo() const override;
    int32_t          n_undo_together(int32_t n_texts) const override;
    void             mark(int32_t branch) override;
    int64_t          mark_bytes() const override;
    void             fork(int32_t from, int32_t to, int32_t pos) override;
    int32_t          n_held(int32_t branch) const override;

    [[nodiscard]] std::string save(int32_t branch) const override;
    void                      restore(int32_t branch, std::span<const char> saved) override;

    bool        is_end(token_id token) const override;
    std::string piece(token_id token) const override;

    // The last pass's logits of a row, [n_vocab]. level: of those that the row has. Throws duo::error if it has none.
    [[nodiscard]] std::span<const float> logits(int32_t i_row, int32_t level = 0) const;

    // How often parameters of sampling were set up: about once for each text.
    [[nodiscard]] int64_t n_setups() const;

    // Limits candidates to ids below n, which the other model can read.
    void limit_vocab(int32_t n);

    // False for recurrent or hybrid memory, which cannot go back to any position; see undo().
    [[nodiscard]] bool can_rollback() const { return can_rollback_; }

    // Of a draft head (head_file::name()); empty: it is another model.
    [[nodiscard]] std::string head_name() const { return head_ ? head_->name() : ""; }
    // Whether the file has MTP layers that can be its draft.
    [[nodiscard]] bool has_mtp() const { return has_mtp_; }

    // Whether logits are independent of the width of the pass: the user asked for it, or duo's kernels compute all
    // products.
    [[nodiscard]] bool same_bits() const { return same_bits_ && !helped(); }
    // Number of matrices for duo's kernels, and of all matrices on the CPU.
    [[nodiscard]] int32_t n_duo_products() const { return n_duo_products_; }
    [[nodiscard]] int32_t n_cpu_products() const { return n_cpu_products_; }
    // Number of tokens for which a draft computes logits.
    [[nodiscard]] int32_t n_proposed() const { return shortlist_ ? n_listed_ : n_vocab_; }
    // The type that weights were requantised to; empty: they are the file's.
    [[nodiscard]] const std::string & packed_as() const { return packed_as_; }
    // Why duo's kernels could not be used although they were requested; empty: no warning.
    [[nodiscard]] const std::string & warning() const { return warning_; }

    [[nodiscard]] const llama_vocab *   vocab() const { return llama_model_get_vocab(model_.get()); }
    [[nodiscard]] const model_options & options() const { return opt_; }
    [[nodiscard]] std::string           description() const;
    // Devices that hold weights.
    [[nodiscard]] std::vector<std::string> device_names() const {
        return on_device_ ? device_names_ : std::vector<std::string>();
    }
    // Whether devices compute prompts with weights of the CPU.
    [[nodiscard]] bool                     helped() const { return n_cpu_products_ > 0 && !helpers_.empty(); }
    [[nodiscard]] std::vector<std::string> helper_names() const {
        return helped() ? device_names_ : std::vector<std::string>();
    }
    [[nodiscard]] uint64_t    n_bytes() const { return llama_model_size(model_.get()); }
    [[nodiscard]] int32_t     n_ctx_train() const { return llama_model_n_ctx_train(model_.get()); }
    [[nodiscard]] std::string meta(const std::string & key) const; // empty: absent

    // Ids of the tokens that begin and end a text; no_token: none.
    [[nodiscard]] token_id token_bos() const { return llama_vocab_bos(vocab()); }
    [[nodiscard]] token_id token_eos() const { return llama_vocab_eos(vocab()); }

    // The tokens before prefix, suffix and middle in a fill-in-the-middle prompt; no_token: none.
    [[nodiscard]] token_id fim_prefix() const { return llama_vocab_fim_pre(vocab()); }
    [[nodiscard]] token_id fim_suffix() const { return llama_vocab_fim_suf(vocab()); }
    [[nodiscard]] token_id fim_middle() const { return llama_vocab_fim_mid(vocab()); }

    // Throws duo::error for an id outside the vocabulary. special: control tokens as text, not as an empty string.
    [[nodiscard]] std::string piece(token_id token, bool special) const;

    // A hash of the raw texts of at most n ids from `first` on. Equal vocabularies have equal hashes.
    [[nodiscard]] uint64_t vocab_hash(int32_t first, int32_t n) const;
    // The token's text as in the file. Throws duo::error for an id outside the vocabulary.
    [[nodiscard]] std::string token_text(token_id token) const;

    // UTF-8 text to ids. parse_special: "<|im_end|>" in the text is that token.
    [[nodiscard]] std::vector<token_id> tokenize(const std::string & text, bool add_special, bool parse_special) const;

  private:
    struct shared_weights {};
    llama_token_model(shared_weights, const llama_token_model & other);

    int32_t guarded(int32_t n_tokens, const std::function<int32_t()> & pass, const std::function<std::string()> & what);
    void    load();
    void    load_file(const std::vector<std::string> & cpu_types, const weight_packing & packing, bool extra_buffers);
    void    make_context();   // also finds out its capabilities
    void    create_context(); // the llama_context alone
    void    probe_rollback();
    // Whether duo's kernels computed all attention of the probe.
    [[nodiscard]] bool all_own(int32_t n_done) const;
    // Whether the cache has values; with latent attention (MLA), the keys are the values.
    [[nodiscard]] bool has_values() const { return probed_.n_written != probed_.n_attentions; }
    // A row of the last pass. Throws duo::error if it has no logits.
    float * logits_of(int32_t i_row, int32_t level = 0) const;
    void    check_numbers(const float * logits, token_id best) const;
    void    check_rows(std::span<const row> rows) const;
    // False: `stop_` became true.
    bool          evaluate(const llama_batch & batch);
    decode_status decode_batch(std::span<const row> rows, const std::atomic<bool> & stop);
    // Fills the batch. Returns the number of its rows, with those of company.
    size_t set_rows(std::span<const row> rows);
    // Where a row of the last decode() is in its last batch.
    [[nodiscard]] int32_t in_batch(int32_t i_row) const { return at_[size_t(i_row - i_first_)]; }
    // The last pass of a batch of n rows would be one row wide, where bits must be the same at any width.
    [[nodiscard]] bool ends_alone(size_t n) const;
    sampler &          sampler_of(int32_t i_row, const sampling_params & sampling);
    // Bits must be the same, and some stock kernel gives a single row other bits.
    [[nodiscard]] bool wants_company() const { return same_bits_ && !head_ && (stock_products_ || !own_attention_); }
    [[nodiscard]] bool is_mtp() const { return head_ && head_->kind == head_kind::mtp; }
    [[nodiscard]] bool is_block() const { return head_ && head_->kind == head_kind::dflash; }
    // Recurrent or hybrid. MTP layers only attend.
    [[nodiscard]] bool keeps_state() const {
        return !is_mtp() && (llama_model_is_recurrent(model_.get()) || llama_model_is_hybrid(model_.get()));
    }
    [[nodiscard]] int32_t     n_layer() const { return is_mtp() ? 1 : llama_model_n_layer(model_.get()); }
    void                      keep_features(size_t n);
    void                      keep_two_outputs(size_t n);
    [[nodiscard]] bool        has_window(int32_t branch, int32_t pos) const;
    [[nodiscard]] std::string head() const;
    bool                      restore_sequence(int32_t branch, std::span<const char> saved);
    void                      undo(std::span<const row> rows);
    void                      set_states(std::span<const row> rows);
    void                      check_borrowed() const;
    decode_status             decode_block(std::span<const row> rows, const std::atomic<bool> & stop);
    llama_batch               batch_of_states(std::span<const row> rows);
    llama_batch               batch_of_blocks(std::span<const row> rows);
    [[nodiscard]] int32_t     level_of(int32_t i_row, std::span<const token_id> text) const;
    void                      set_row(size_t i, const row & r, int32_t pos, bool output);

    model_options                   opt_;
    std::vector<std::string>        device_names_;
    std::vector<ggml_backend_dev_t> helpers_; // devices that may compute prompts with the CPU's weights

    std::optional<head_file>  head_;             // of a draft head
    const llama_token_model * target_ = nullptr; // whose matrices the head may use

    std::shared_ptr<llama_model>                   model_;
    std::vector<llama_adapter_lora *>              loras_; // the model's
    std::unique_ptr<llama_context, context_closer> context_;
    std::vector<std::unique_ptr<sampler>>          samplers_; // one for each text; a draft's: used last first

    const std::atomic<bool> *       stop_         = nullptr; // of the running decode()
    int32_t                         n_ctx_        = 0;
    int32_t                         n_batch_      = 0;
    int32_t                         n_rows_       = 0; // of the last batch
    int32_t                         n_branch_     = 1;
    int32_t                         n_vocab_      = 0;
    bool                            can_rollback_ = true;
    bool                            is_draft_     = false;
    bool                            one_sequence_ = false; // a pass cannot have rows of several texts
    mutable std::vector<kept_state> states_;               // of recurrent or hybrid memory, by text; none of a draft's
    cpu::cell_order::nodes          probed_;               // of the probe's graph
    int32_t                         n_snapshots_   = 0;    // of the state, to ask for
    int32_t                         i_first_       = 0; // row of the last decode() that was the first of its last batch
    bool                            has_mtp_       = false;
    int32_t                         n_threads_     = 0; // see use_threads()
    bool                            same_bits_     = false;
    bool                            on_device_     = false; // some weights are
    bool                            own_attention_ = false; // duo's kernels compute the attention of all layers
    bool        stock_products_ = false; // stock kernels compute some product, perhaps only a router's
    bool        extra_buffers_  = false; // some weights may be in the CPU's extra buffers; a head's, with its target's
    int32_t     n_duo_products_ = 0;
    int32_t     n_cpu_products_ = 0;
    std::string packed_as_;
    std::string duo_output_; // the name of the output matrix, if duo's kernels compute it
    std::string warning_;

    static constexpr size_t n_pos_parts = 4; // at most, of a position

    // The batch in llama_decode's form, with space for n_batch_ rows and the extra row of strict passes.
    std::vector<llama_token>    token_;
    std::vector<llama_pos>      pos_;
    std::vector<int32_t>        n_seq_;
    std::vector<llama_seq_id>   seq_; // 0, 1, 2, ...; a row's branches are a slice of it
    std::vector<llama_seq_id *> seq_of_;
    std::vector<int8_t>         output_;
    std::vector<float>          state_of_; // a draft head's
    std::vector<int32_t>        at_;       // by row of the last batch's caller; company has rows of its own
    std::vector<float>          features_; // of the rows before i_first_

    cpu::cell_order cells_; // of own attention

    std::optional<shortlist> shortlist_;    // a draft's
    int32_t                  n_listed_ = 0; // its tokens before the first text
};

} // namespace duo
