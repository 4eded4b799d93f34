// A draft with another vocabulary than its target's. It speaks the target's: one row of a token is as many rows of the
// draft as spell it, and the draft's logits become logits of the target's tokens (translation.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model.h"
#include "model/token_model.h"
#include "translation.h"

namespace duo {

// For the draft's thread. Draft and translation must outlive it, and so must the vocabulary, the target's.
class translated_model : public token_model {
  public:
    translated_model(llama_token_model & draft, const vocabulary & target, const translation & words);

    [[nodiscard]] const model_facts & facts() const override { return facts_; }

    decode_status decode(std::span<const row> rows, const std::atomic<bool> & stop) override;
    void          use_threads(int32_t n) override { draft_.use_threads(n); }

    int32_t candidates(int32_t i_row, const sampling_params & sampling, std::span<const token_id> text,
                       std::span<candidate> out) override;
    void    chances(int32_t i_row, const sampling_params & sampling, std::span<const token_id> text,
                    std::vector<candidate> & out) override;
    float   logprobs(int32_t i_row, token_id token, std::span<candidate> out) override;

    bool                  rollback(int32_t branch, int32_t pos) override;
    [[nodiscard]] int32_t n_held(int32_t branch) const override { return int32_t(ends_[size_t(branch)].size()); }
    void                  fork(int32_t from, int32_t to, int32_t pos) override;

    [[nodiscard]] std::string save(int32_t branch) const override;
    void                      restore(int32_t branch, std::span<const char> saved) override;

    [[nodiscard]] bool        is_end(token_id token) const override { return target_.is_end(token); }
    [[nodiscard]] std::string piece(token_id token) const override { return target_.piece(token, false); }

  private:
    // Where the token at position `pos` of the branch begins, in positions of the draft.
    [[nodiscard]] int32_t begin_of(int32_t branch, int32_t pos) const {
        return pos <= 0 ? 0 : ends_[size_t(branch)][size_t(pos) - 1];
    }

    llama_token_model &               draft_;
    const vocabulary &                target_;
    const translation &               words_;
    model_facts                       facts_;
    std::vector<std::vector<int32_t>> ends_; // by branch: where its tokens end, in positions of the draft
    std::vector<row>                  rows_; // scratch: of the draft
    std::vector<int32_t>              at_;   // by row of the last decode: the draft's row with its logits
};

} // namespace duo
