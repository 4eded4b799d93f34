#include "expert_forecast.h"

#include <algorithm>

#include "ranking.h"

namespace duo {

expert_forecast::expert_forecast(const expert_shape & shape, size_t n_bytes)
    : shape_(shape), token_(shape, n_bytes), recent_(shape), joined_(shape, {&token_, &recent_, &router_}),
      layers_(size_t(shape.n_layer)), of_row_(size_t(shape.n_expert)) {
    for (known & k : layers_) {
        k.chances.resize(size_t(shape.n_expert));
    }
}

void expert_forecast::begin(std::span<const token_id> tokens) {
    tokens_.assign(tokens.begin(), tokens.end());
    router_.forget();
    ++version_;
}

void expert_forecast::hear_router(int32_t layer, std::span<const float> scores) {
    router_.hear(layer, scores);
    layers_[size_t(layer)].version = 0;
}

void expert_forecast::learn(int32_t layer, std::span<const token_id> tokens, const expert_choice & choice) {
    if (router_.n_numbers(layer) != tokens.size() * size_t(shape_.n_expert)) {
        router_.forget(layer); // the last layer leaves out rows without an output
    }
    if (measures_) {
        count(layer, tokens, choice);
    }
    joined_.learn(layer, tokens, choice);
}

std::span<const float> expert_forecast::chances(int32_t layer) {
    known & k = layers_[size_t(layer)];
    if (k.version != version_) {
        k.version = version_;
        if (shape_.needs_all(tokens_.size())) {
            std::ranges::fill(k.chances, 1.0f);
        } else {
            join_rows(joined_.n_parts(), layer, tokens_, k.chances);
        }
    }
    return k.chances;
}

void expert_forecast::choose(int32_t first, double n_in_time, std::vector<layer_expert> & out) {
    out.clear();
    const int32_t end  = std::min(first + n_layers_most, shape_.n_layer);
    double        room = 0.0;
    for (int32_t layer = first; layer < end; ++layer) {
        room += n_in_time;
        const auto of_layer = chances(layer);
        rank_experts(of_layer, of_layer.size(), ranked_);
        for (const int32_t expert : ranked_) {
            if (room < 1.0 || of_layer[size_t(expert)] < least) {
                break;
            }
            out.push_back({layer, expert});
            room -= 1.0;
        }
    }
}

// The chances that some row needs the experts, by one predictor, or by all.
void expert_forecast::join_rows(size_t predictor, int32_t layer, std::span<const token_id> tokens,
                                std::span<float> out) {
    std::ranges::fill(out, 0.0f);
    for (size_t row = 0; row < tokens.size(); ++row) {
        if (predictor < joined_.n_parts()) {
            joined_.score_by(predictor, layer, row, tokens[row], of_row_);
        } else {
            joined_.score(layer, row, tokens[row], of_row_);
        }
        for (size_t i = 0; i < out.size(); ++i) {
            out[i] += (1.0f - out[i]) * of_row_[i];
        }
    }
}

void expert_forecast::count(int32_t layer, std::span<const token_id> tokens, const expert_choice & choice) {
    std::vector<bool>  needed(size_t(shape_.n_expert));
    std::vector<float> said(size_t(shape_.n_expert));
    for (const int32_t expert : choice.experts) {
        needed[size_t(expert)] = true;
    }
    for (size_t i = 0; i < recalls_.size(); ++i) {
        join_rows(i, layer, tokens, said);
        rank_experts(said, said.size(), ranked_);
        recalls_[i].add(ranked_, needed);
    }
}

} // namespace duo
