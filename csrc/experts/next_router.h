// What a layer's router would choose for the hidden states of the layer before it: they change little from layer to
// layer.
#pragma once

#include <vector>

#include "expert_predictor.h"

namespace duo {

class next_router final : public expert_predictor {
  public:
    // What that router says, [rows][n_expert]; of one layer at a time.
    void hear(int32_t layer, std::span<const float> scores);
    void forget() { layer_ = -1; }

    [[nodiscard]] bool has(int32_t layer) const { return layer == layer_; }
    // Of the layer that it has heard of.
    [[nodiscard]] size_t n_numbers() const { return scores_.size(); }

    void score(int32_t layer, size_t row, token_id token, std::span<float> out) const override;
    void learn(int32_t /*layer*/, std::span<const token_id> /*tokens*/, const expert_choice & /*choice*/) override {}

  private:
    int32_t            layer_ = -1;
    std::vector<float> scores_;
};

} // namespace duo
