// The experts that the last tokens needed: neighbours often share some.
#pragma once

#include <vector>

#include "expert_predictor.h"

namespace duo {

class recent_experts final : public expert_predictor {
  public:
    explicit recent_experts(const expert_shape & shape);

    void score(int32_t layer, size_t row, token_id token, std::span<float> out) const override;
    void learn(int32_t layer, std::span<const token_id> tokens, const expert_choice & choice) override;

  private:
    std::span<float> uses_of(int32_t layer) { return std::span(uses_).subspan(size_t(layer) * n_expert_, n_expert_); }

    size_t             n_expert_;
    std::vector<float> uses_; // [n_layer][n_expert]: by how many rows, older ones count less
};

} // namespace duo
