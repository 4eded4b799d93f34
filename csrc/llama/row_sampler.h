// Candidates from the logits of the last pass's rows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/token_model.h"
#include "model_decoder.h"
#include "sampler.h"
#include "translation.h"

namespace duo {

// For the functions of token_model with these names. The weights and the decoder must outlive it.
class row_sampler {
  public:
    row_sampler(const model_weights & w, const model_decoder & decoder);

    // Limits candidates to ids below n, which the other model can read.
    void limit_vocab(int32_t n);
    // Candidates are tokens of the target's vocabulary from now on. It and the translation must outlive this.
    void speak(const llama_vocab * target, const translation & words);

    int32_t          candidates(int32_t i_row, const sampling_params & sampling, std::span<const token_id> text,
                                std::span<candidate> out);
    void             chances(int32_t i_row, const sampling_params & sampling, std::span<const token_id> text,
                             std::vector<candidate> & out);
    std::span<float> row_logits(int32_t i_row, const sampling_params * grammar_of, std::span<const token_id> text);
    float            logprobs(int32_t i_row, token_id token, std::span<candidate> out);

    // A row's logits, [n_vocab]. level: of those that the row has. Throws duo::error if it has none.
    [[nodiscard]] std::span<float> logits(int32_t i_row, int32_t level = 0) const;

    // How often parameters of sampling were set up: about once for each text.
    [[nodiscard]] int64_t n_setups() const;
    // How many logits were sorted: few, unless a filter looks at the order of all.
    [[nodiscard]] int64_t n_sorted() const;

  private:
    // At which of the levels of the row the text ends.
    [[nodiscard]] int32_t level_of(int32_t i_row, std::span<const token_id> text) const;
    void                  make_samplers(const llama_vocab * vocab, int32_t n_vocab);
    // A row's logits, or what the target's tokens have of them.
    [[nodiscard]] float * scores(int32_t i_row, int32_t level);
    sampler &             sampler_of(int32_t i_row, const sampling_params & sampling);
    void                  check_numbers(const float * logits, token_id best) const;

    const model_weights &                 weights_;
    const model_decoder &                 decoder_;
    std::vector<std::unique_ptr<sampler>> samplers_; // one for each text; a draft's: used last first
    const translation *                   words_ = nullptr;
    std::vector<float>                    translated_; // scratch: a row's logits by the target's tokens
};

} // namespace duo
