// token_model on libllama: one model, one context, its devices. Its parts do the work.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "foreseeing_model.h"
#include "model_decoder.h"
#include "model_weights.h"
#include "row_sampler.h"
#include "vocabulary.h"

namespace duo {

// One thread at a time uses it. Any thread may read its weights and its vocabulary.
class llama_token_model : public foreseeing_model {
  public:
    // Makes a context, unless the weights are those of a vocabulary alone (vocab_only). target: of a draft head; it
    // must outlive this model. eyes: null: it sees nothing. Throws duo::error.
    explicit llama_token_model(std::shared_ptr<const model_weights> weights, const llama_token_model * target = nullptr,
                               std::shared_ptr<projector> eyes = nullptr);

    [[nodiscard]] const model_weights & weights() const { return *weights_; }

    // None without a context.
    [[nodiscard]] row_sampler * sampler() const { return sampler_.get(); }

    const model_facts & facts() const override { return facts_; }

    decode_status decode(std::span<const row> rows, const std::atomic<bool> & stop) override {
        return decoder_->decode(rows, stop);
    }
    void use_threads(int32_t n) override { decoder_->context().use_threads(n); }
    void use_scales(const lora_scales & scales) override { decoder_->context().use_scales(scales); }

    int32_t candidates(int32_t i_row, const sampling_params & sampling, std::span<const token_id> text,
                       std::span<candidate> out) override {
        return sampler_->candidates(i_row, sampling, text, out);
    }
    void chances(int32_t i_row, const sampling_params & sampling, std::span<const token_id> text,
                 std::vector<candidate> & out) override {
        sampler_->chances(i_row, sampling, text, out);
    }
    std::span<float> row_logits(int32_t i_row, const sampling_params * grammar_of,
                                std::span<const token_id> text) override {
        return sampler_->row_logits(i_row, grammar_of, text);
    }
    float logprobs(int32_t i_row, token_id token, std::span<candidate> out) override {
        return sampler_->logprobs(i_row, token, out);
    }

    head_states & states() override { return decoder_->hidden(); }

    bool    rollback(int32_t branch, int32_t pos) override { return decoder_->rows().rollback(branch, pos); }
    bool    shift(int32_t branch, int32_t pos, int32_t n) override { return decoder_->rows().shift(branch, pos, n); }
    int32_t take_back(int32_t branch, int32_t pos) override { return decoder_->rows().take_back(branch, pos); }
    int32_t n_undo_together(int32_t n_texts) const override { return decoder_->cache().n_undo_together(n_texts); }
    void    mark(int32_t branch) override { decoder_->cache().mark(branch); }
    int64_t mark_bytes() const override { return decoder_->cache().mark_bytes(); }
    void    fork(int32_t from, int32_t to, int32_t pos) override { decoder_->rows().fork(from, to, pos); }
    int32_t n_held(int32_t branch) const override { return decoder_->rows().n_held(branch); }
    std::string save(int32_t branch) const override { return decoder_->rows().save(branch); }
    int64_t     saved_bytes(int32_t branch) const override { return decoder_->cache().saved_bytes(branch); }
    void restore(int32_t branch, std::span<const char> saved) override { decoder_->rows().restore(branch, saved); }

    bool        is_end(token_id token) const override { return vocabulary.is_end(token); }
    std::string piece(token_id token) const override {
        return vocabulary.piece(token, weights_->options.special && !is_end(token));
    }

  private:
    std::shared_ptr<const model_weights> weights_;
    std::unique_ptr<model_decoder>       decoder_; // none without a context
    std::unique_ptr<row_sampler>         sampler_;
    model_facts                          facts_;

  public:
    const duo::vocabulary            vocabulary;
    const std::shared_ptr<projector> eyes; // null: it sees nothing. The weights outlive it
};

} // namespace duo
