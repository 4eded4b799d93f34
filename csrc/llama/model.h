// token_model on libllama: one model, one context, its devices. Its parts do the work.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/token_model.h"
#include "model_decoder.h"
#include "model_weights.h"
#include "row_sampler.h"
#include "vocabulary.h"

namespace duo {

// One thread at a time uses it. Any thread may read its weights and its vocabulary.
class llama_token_model : public token_model {
  public:
    // Makes a context, unless the weights are those of a vocabulary alone (vocab_only). target: of a draft head; it
    // must outlive this model. Throws duo::error.
    explicit llama_token_model(std::shared_ptr<const model_weights> weights, const llama_token_model * target = nullptr)
        : weights_(std::move(weights)), vocabulary_(weights_->model, weights_->options.path) {
        if (!weights_->options.vocab_only) {
            decoder_ = model_decoder::make(*weights_, target == nullptr ? nullptr : target->decoder_->context().get());
            sampler_.emplace(*weights_, *decoder_);
        }
    }

    [[nodiscard]] const model_weights &   weights() const { return *weights_; }
    [[nodiscard]] const duo::vocabulary & vocabulary() const { return vocabulary_; }

    // The last pass's logits of a row (row_sampler).
    [[nodiscard]] std::span<const float> logits(int32_t i_row, int32_t level) const {
        return sampler_->logits(i_row, level);
    }
    // Number of tokens for which a draft computes logits.
    [[nodiscard]] int32_t n_proposed() const { return decoder_ ? decoder_->n_proposed() : n_vocab(); }
    // How often parameters of sampling were set up: about once for each text.
    [[nodiscard]] int64_t n_setups() const { return sampler_ ? sampler_->n_setups() : 0; }
    // False for recurrent or hybrid memory, which cannot go back to any position; see undo().
    [[nodiscard]] bool can_rollback() const { return !decoder_ || cache().can_rollback(); }
    // Limits candidates to ids below n, which the other model can read.
    void limit_vocab(int32_t n) { sampler_->limit_vocab(n); }

    int32_t n_ctx() const override { return decoder_ ? shape().n_ctx : 0; }
    int32_t n_batch() const override { return shape().n_batch; }
    int32_t n_branch() const override { return shape().n_branch; }
    int32_t n_cells() const override { return int32_t(llama_n_ctx(decoder_->context().get())) - 1; }
    int32_t n_vocab() const override { return weights_->n_vocab(); }
    int32_t n_features() const override { return weights_->n_features(); }
    int32_t n_inputs() const override { return weights_->n_inputs(); }
    int32_t n_state() const override { return weights_->n_state(); }
    int32_t n_levels() const override { return weights_->n_levels(); }

    decode_status decode(std::span<const row> rows, const std::atomic<bool> & stop) override {
        return decoder_->decode(rows, stop);
    }
    void use_threads(int32_t n) override { decoder_->context().use_threads(n); }

    int32_t candidates(int32_t i_row, const sampling_params & sampling, std::span<const token_id> text,
                       std::span<candidate> out) override {
        return sampler_->candidates(i_row, sampling, text, out);
    }
    void chances(int32_t i_row, const sampling_params & sampling, std::span<const token_id> text,
                 std::vector<candidate> & out) override {
        sampler_->chances(i_row, sampling, text, out);
    }
    std::span<float> row_logits(int32_t i_row) override { return sampler_->logits(i_row); }
    float            logprobs(int32_t i_row, token_id token, std::span<candidate> out) override {
        return sampler_->logprobs(i_row, token, out);
    }

    void features(int32_t i_row, std::span<float> out) const override { decoder_->hidden().features(i_row, out); }
    void encode(std::span<const float> in, std::span<float> out) override { decoder_->hidden().encode(in, out); }
    void state(int32_t i_row, std::span<float> out) const override { decoder_->hidden().state(i_row, out); }

    bool        rollback(int32_t branch, int32_t pos) override { return cache().rollback(branch, pos); }
    int32_t     take_back(int32_t branch, int32_t pos) override { return cache().take_back(branch, pos); }
    undo_kind   undo() const override { return cache().undo(); }
    int32_t     n_undo() const override { return cache().n_undo(); }
    int32_t     n_undo_together(int32_t n_texts) const override { return cache().n_undo_together(n_texts); }
    void        mark(int32_t branch) override { cache().mark(branch); }
    int64_t     mark_bytes() const override { return cache().mark_bytes(); }
    void        fork(int32_t from, int32_t to, int32_t pos) override { cache().fork(from, to, pos); }
    int32_t     n_held(int32_t branch) const override { return cache().n_held(branch); }
    std::string save(int32_t branch) const override { return cache().save(branch); }
    void        restore(int32_t branch, std::span<const char> saved) override { cache().restore(branch, saved); }

    bool        is_end(token_id token) const override { return vocabulary_.is_end(token); }
    std::string piece(token_id token) const override { return vocabulary_.piece(token, false); }

  private:
    [[nodiscard]] const context_shape & shape() const { return decoder_->context().shape(); }
    [[nodiscard]] model_cache &         cache() const { return decoder_->cache(); }

    std::shared_ptr<const model_weights> weights_;
    duo::vocabulary                      vocabulary_;
    std::unique_ptr<model_decoder>       decoder_; // none without a context
    std::optional<row_sampler>           sampler_;
};

} // namespace duo
