// What a layer's router would choose for the hidden states of the layer before it: they change little from layer to
// layer.
#pragma once

#include <array>
#include <vector>

#include "expert_predictor.h"

namespace duo {

class next_router final : public expert_predictor {
  public:
    // What that router says, [rows][n_expert]. Of two neighbouring layers: the next one speaks before this one chooses.
    void hear(int32_t layer, std::span<const float> scores);
    void forget(int32_t layer);
    void forget();

    // That it has heard of the layer.
    [[nodiscard]] size_t n_numbers(int32_t layer) const {
        return of(layer).layer == layer ? of(layer).scores.size() : 0;
    }

    void score(int32_t layer, size_t row, token_id token, std::span<float> out) const override;
    void learn(int32_t /*layer*/, std::span<const token_id> /*tokens*/, const expert_choice & /*choice*/) override {}

  private:
    struct said {
        int32_t            layer = -1;
        std::vector<float> scores;
    };

    [[nodiscard]] const said & of(int32_t layer) const { return last_[size_t(layer) % last_.size()]; }

    std::array<said, 2> last_;
};

} // namespace duo
