#include "hidden_states.h"

#include <algorithm>

#include "base/error.h"
#include "hidden.h"

namespace duo {

void hidden_states::features(int32_t i_row, std::span<float> out) const {
    if (!batch_.is_done(i_row) || out.size() != size_t(weights_.n_features())) {
        throw error("the hidden states of row " + std::to_string(i_row) + " of " + weights_.options.path +
                    " are not there");
    }
    if (i_row < batch_.i_first()) {
        std::copy_n(kept_.begin() + ptrdiff_t(size_t(i_row) * out.size()), out.size(), out.begin());
        return;
    }
    const auto i = size_t(batch_.find(i_row));
    if (weights_.options.mtp) {
        std::copy_n(hidden().states(context_.get()) + i * out.size(), out.size(), out.begin());
        return;
    }
    const auto n_embd = size_t(llama_model_n_embd(weights_.model.get()));
    float *    to     = out.data();
    for (const int32_t layer : weights_.options.feature_layers) {
        to = std::copy_n(hidden().layer_input(context_.get(), uint32_t(layer)) + i * n_embd, n_embd, to);
    }
}

void hidden_states::keep(size_t n) {
    const auto n_each = size_t(weights_.n_features());
    kept_.resize(n * n_each);
    for (size_t i = 0; n_each > 0 && i < n; ++i) {
        features(int32_t(i), std::span(kept_).subspan(i * n_each, n_each));
    }
}

// Positions do not matter here. Without any, llama.cpp numbers the rows itself, in a way that it accepts.
void hidden_states::encode(std::span<const float> features, std::span<float> out) {
    const size_t n = features.size() / size_t(weights_.n_inputs());
    if (n == 0 || n > size_t(context_.shape().n_batch) || out.size() != n * size_t(weights_.n_state())) {
        throw error("a draft head was given " + std::to_string(n) + " rows of hidden states at once");
    }
    if (weights_.head->kind != head_kind::eagle3) {
        std::copy(features.begin(), features.end(), out.begin());
        return;
    }
    llama_batch batch{};
    batch.n_tokens = int32_t(n);
    batch.embd     = const_cast<float *>(features.data()); // it is only read
    std::copy_n(context_.encode(batch), out.size(), out.begin());
}

void hidden_states::state(int32_t i_row, std::span<float> out) const {
    const float * states = hidden().states(context_.get());
    if (!batch_.is_done(i_row) || !batch_.has_output(i_row) || states == nullptr) {
        throw error("row " + std::to_string(i_row) + " of the last pass over " + weights_.options.path +
                    " has no state");
    }
    std::copy_n(states + size_t(i_row) * out.size(), out.size(), out.begin());
}

} // namespace duo
