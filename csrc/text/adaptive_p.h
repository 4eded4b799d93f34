// Adaptive-p: prefers tokens whose probability is near a target, so that the mean of the chosen ones stays near it.
// llama.cpp: llama_sampler_init_adaptive_p (pull request 17927).
//
// The target moves with the tokens before, which a draft only guesses. So it is a hook of the target, as mirostat is.
#pragma once

#include <vector>

#include "learning_hook.h"

namespace duo {

// One text. Belongs to the target's thread. It comes after all other samplers.
class adaptive_p : public learning_hook {
  public:
    // target: the chance that is wanted, 0 to 1. decay: how long chosen tokens count, 0 to 0.99; about 1 / (1 - decay)
    // of them.
    adaptive_p(float target, float decay);

    void reconsider(std::span<const token_id> text, std::span<float> logits) override;

    // The chance that is preferred in the next row.
    [[nodiscard]] double preferred() const;

  private:
    void learn(token_id chosen) override;

    const double       target_;
    const double       decay_;
    double             sum_;    // of the chances of chosen tokens, older ones less
    double             weight_; // what they count together
    std::vector<float> p_;      // of the last row, by token: the chance before it was changed; below 0: it had none
};

} // namespace duo
