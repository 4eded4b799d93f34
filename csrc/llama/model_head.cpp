// llama_token_model as a draft head, and as the target of one. Rows of a head are made of a token and a state. EAGLE-3
// has an encoder that makes states of the target's hidden states (llama.cpp: src/models/eagle3.cpp). MTP layers read
// the target's last state as it is (the graph_mtp of src/models/hy-v3.cpp and others). For DFlash see model_block.cpp.
#include <algorithm>

#include "base/error.h"
#include "hidden.h"
#include "log.h"
#include "model.h"

namespace duo {

int32_t llama_token_model::n_features() const {
    return opt_.mtp && !is_draft_ ? llama_model_n_embd_out(model_.get())
                                  : int32_t(opt_.feature_layers.size()) * llama_model_n_embd(model_.get());
}

void llama_token_model::features(int32_t i_row, std::span<float> out) const {
    if (i_row < 0 || i_row >= i_first_ + n_rows_ || out.size() != size_t(n_features())) {
        throw error("the hidden states of row " + std::to_string(i_row) + " of " + opt_.path + " are not there");
    }
    if (i_row < i_first_) {
        std::copy_n(features_.begin() + ptrdiff_t(size_t(i_row) * out.size()), out.size(), out.begin());
        return;
    }
    const auto i = size_t(in_batch(i_row));
    if (opt_.mtp) {
        std::copy_n(hidden().states(context_.get()) + i * out.size(), out.size(), out.begin());
        return;
    }
    const auto n_embd = size_t(llama_model_n_embd(model_.get()));
    float *    to     = out.data();
    for (const int32_t layer : opt_.feature_layers) {
        to = std::copy_n(hidden().layer_input(context_.get(), uint32_t(layer)) + i * n_embd, n_embd, to);
    }
}

// The next batch of a divided pass replaces libllama's.
void llama_token_model::keep_features(size_t n) {
    const auto n_each = size_t(n_features());
    features_.resize(n * n_each);
    for (size_t i = 0; n_each > 0 && i < n; ++i) {
        features(int32_t(i), std::span(features_).subspan(i * n_each, n_each));
    }
}

int32_t llama_token_model::n_inputs() const {
    return head_ ? head_->n_inputs() : 0;
}

int32_t llama_token_model::n_state() const {
    return !head_ ? 0 : is_block() ? head_->n_inputs() : int32_t(head_->n_embd); // its cells are made of the inputs
}

// Positions do not matter here. Without any, llama.cpp numbers the rows itself, in a way that it accepts.
void llama_token_model::encode(std::span<const float> features, std::span<float> out) {
    const size_t n = features.size() / size_t(n_inputs());
    if (n == 0 || n > size_t(n_batch_) || out.size() != n * size_t(n_state())) {
        throw error("a draft head was given " + std::to_string(n) + " rows of hidden states at once");
    }
    if (head_->kind != head_kind::eagle3) {
        std::copy(features.begin(), features.end(), out.begin());
        return;
    }
    llama_batch batch{};
    batch.n_tokens       = int32_t(n);
    batch.embd           = const_cast<float *>(features.data()); // it is only read
    const auto    what   = [&] { return "reading hidden states with " + opt_.path + " failed"; };
    const int32_t rc     = guarded(int32_t(n), [&] { return llama_encode(context_.get(), batch); }, what);
    const float * states = rc == 0 ? hidden().states(context_.get()) : nullptr;
    if (states == nullptr) {
        throw error(what() + log_reason());
    }
    std::copy_n(states, out.size(), out.begin());
}

// llama.cpp computes all rows of a call but copies the first ones only, as many as have an output. So all have one, or
// none.
void llama_token_model::set_states(std::span<const row> rows) {
    const bool any = std::any_of(rows.begin(), rows.end(), [](const row & r) { return r.output; });
    std::fill_n(output_.begin(), rows.size(), int8_t(any ? 1 : 0));
    const auto n = size_t(n_state());
    for (size_t i = 0; i < rows.size(); ++i) {
        float * to = state_of_.data() + i * n;
        if (rows[i].state != nullptr) {
            std::copy_n(rows[i].state, n, to);
        } else {
            std::fill_n(to, n, 0.0f);
        }
    }
}

void llama_token_model::state(int32_t i_row, std::span<float> out) const {
    const float * states = hidden().states(context_.get());
    if (i_row < 0 || i_row >= n_rows_ || output_[size_t(i_row)] == 0 || states == nullptr) {
        throw error("row " + std::to_string(i_row) + " of the last pass over " + opt_.path + " has no state");
    }
    std::copy_n(states + size_t(i_row) * out.size(), out.size(), out.begin());
}

// Throws duo::error if the head must use a matrix of a target that it cannot reach.
void llama_token_model::check_borrowed() const {
    if (!head_ || (head_->own_embedding && head_->own_output)) {
        return;
    }
    if (target_ == nullptr) {
        throw error(error_kind::bad_value, opt_.path +
                                               " has no embedding or output matrix of its own, so it only works "
                                               "beside its target; load both together");
    }
    if (!head_->own_output && !(device_names_.empty() && target_->device_names_.empty())) {
        throw error(error_kind::bad_value,
                    opt_.path + " uses its target's output matrix, so both must be on the CPU (-dev none -devd none); "
                                "choose a head with an output matrix of its own for another device");
    }
}

} // namespace duo
