// Mirostat (Basu et al., arXiv 2007.14966): tokens that are too surprising are dropped, so that the surprise of those
// that are chosen stays near a target. llama.cpp: llama_sampler_init_mirostat, llama_sampler_init_mirostat_v2.
//
// The limit depends on the tokens before, which a draft only guesses. So it is a hook of the target, which sees the
// rows in order; the draft guesses without it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "learning_hook.h"

namespace duo {

struct mirostat_params {
    int32_t version = 2;    // 1 or 2
    float   tau     = 5.0f; // the surprise that is wanted, in bits
    float   eta     = 0.1f; // how fast the limit follows
    float   temp    = 0.8f; // above 0

    std::vector<std::pair<token_id, float>> logit_bias{}; // the row gets them later; they count here, too
};

// One text. Belongs to the target's thread.
class mirostat : public learning_hook {
  public:
    explicit mirostat(mirostat_params params) : params_(std::move(params)), limit_(2.0 * double(params_.tau)) {}

    void reconsider(std::span<const token_id> text, std::span<float> logits) override;

    // The largest surprise that a token may have now, in bits.
    [[nodiscard]] double limit() const { return limit_; }

  private:
    bool               weigh(std::span<const float> logits);
    void               learn(token_id chosen) override;
    [[nodiscard]] bool keeps_by_rank() const { return params_.version == 1; }
    double             least_by_rank();

    const mirostat_params params_;
    double                limit_;
    std::vector<double>   p_;    // of the last row, by token: the chance, 0 where it was dropped
    std::vector<double>   best_; // scratch: the largest of them
};

} // namespace duo
