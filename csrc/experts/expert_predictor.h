// Says which experts a row of a pass probably needs, before the router has chosen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/messages.h"
#include "expert_choice.h"

namespace duo {

class expert_predictor {
  public:
    virtual ~expert_predictor() = default;

    // For a row of the pass with this token (no_token: unknown): a number for each expert of the layer, larger if it is
    // likelier. 0: nothing is known of it.
    virtual void score(int32_t layer, size_t row, token_id token, std::span<float> out) const = 0;

    // The layer's router has chosen. tokens: of its rows.
    virtual void learn(int32_t layer, std::span<const token_id> tokens, const expert_choice & choice) = 0;
};

} // namespace duo
