// The experts that a token needed before. In early layers a token's experts depend on little else.
#pragma once

#include <vector>

#include "expert_predictor.h"

namespace duo {

class token_experts final : public expert_predictor {
  public:
    // Takes at most n_bytes of memory, but has room for one token at least.
    token_experts(const expert_shape & shape, size_t n_bytes);

    void score(int32_t layer, size_t row, token_id token, std::span<float> out) const override;
    void learn(int32_t layer, std::span<const token_id> tokens, const expert_choice & choice) override;

  private:
    struct use {
        int32_t expert = -1;
        float   weight = 0.0f; // decays with each time that the token comes
    };
    // A token's uses, [n_layer][n_kept_]. Another token with the same place takes it.
    struct place {
        token_id         token = no_token;
        std::vector<use> uses;
    };

    [[nodiscard]] size_t at(token_id token) const { return size_t(token) % n_places_; }
    std::span<use>       uses_of(token_id token, int32_t layer);
    static void          note(std::span<use> uses, int32_t expert);

    size_t             n_layer_;
    size_t             n_kept_; // experts of a layer that are remembered
    size_t             n_places_;
    std::vector<place> places_; // as many as the largest token so far needs
};

} // namespace duo
