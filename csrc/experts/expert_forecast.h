// The chances that a pass needs the experts of its layers, from all predictors together; and which of them to fetch.
#pragma once

#include <array>
#include <vector>

#include "expert_recall.h"
#include "joined_experts.h"
#include "next_router.h"
#include "recent_experts.h"
#include "token_experts.h"

namespace duo {

struct layer_expert {
    int32_t layer;
    int32_t expert;

    bool operator==(const layer_expert &) const = default;
};

// One model's. One thread at a time uses it.
class expert_forecast {
  public:
    // In the order of recall(); the last is all of them together.
    static constexpr std::array names{"token", "recent", "router", "joined"};

    // n_bytes: of memory that it may take.
    expert_forecast(const expert_shape & shape, size_t n_bytes);
    expert_forecast(const expert_forecast &)             = delete;
    expert_forecast & operator=(const expert_forecast &) = delete;

    [[nodiscard]] const expert_shape & shape() const { return shape_; }

    // A pass over these tokens begins, or may come next.
    void begin(std::span<const token_id> tokens);
    // What the layer's router says of the hidden states of the layer before it, [rows][n_expert].
    void hear_router(int32_t layer, std::span<const float> scores);
    // What it has chosen. tokens: of these rows.
    void learn(int32_t layer, std::span<const token_id> tokens, const expert_choice & choice);

    // Of each expert of the layer. Valid until the next call.
    [[nodiscard]] std::span<const float> chances(int32_t layer);
    // The experts that are worth fetching, in the order in which they are needed: of `first` and the next layers.
    // n_in_time: how many can be fetched while one layer is computed.
    void choose(int32_t first, double n_in_time, std::vector<layer_expert> & out);

    // From now on it counts what the predictors would have said.
    void                                measure() { measures_ = true; }
    [[nodiscard]] const expert_recall & recall(size_t predictor) const { return recalls_[predictor]; }

  private:
    static constexpr int32_t n_layers_most = 4;    // ahead; further on, other layers' choices say more
    static constexpr float   least         = 0.3f; // chance with which an expert is worth what it takes from the disk

    struct known {
        uint64_t           version = 0;
        std::vector<float> chances;
    };

    void join_rows(size_t predictor, int32_t layer, std::span<const token_id> tokens, std::span<float> out);
    void count(int32_t layer, std::span<const token_id> tokens, const expert_choice & choice);

    expert_shape                            shape_;
    token_experts                           token_;
    recent_experts                          recent_;
    next_router                             router_;
    joined_experts                          joined_;
    std::vector<token_id>                   tokens_;      // of the pass
    uint64_t                                version_ = 1; // of what is known of it
    std::vector<known>                      layers_;
    std::vector<float>                      of_row_; // scratch
    std::vector<int32_t>                    ranked_; // scratch
    bool                                    measures_ = false;
    std::array<expert_recall, names.size()> recalls_;
};

} // namespace duo
