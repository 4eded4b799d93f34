// The hidden states that a draft head reads from its target, and those that it makes from them.
#pragma once

#include <cstdint>
#include <span>

namespace duo {

// One thread at a time: the worker that owns the model.
class head_states {
  public:
    virtual ~head_states() = default;

    // A target's hidden states at row `i_row` of the last decode, whether it has an output or not. out: [n_features].
    virtual void features(int32_t /*i_row*/, std::span<float> /*out*/) const {}

    // A draft head makes states of the target's hidden states, [n][n_inputs]. out: [n][n_state]. n: at most n_batch.
    virtual void encode(std::span<const float> /*features*/, std::span<float> /*out*/) {}
    // The state after row `i_row` of the last decode, which has an output. out: [n_state].
    virtual void state(int32_t /*i_row*/, std::span<float> /*out*/) const {}
};

} // namespace duo
