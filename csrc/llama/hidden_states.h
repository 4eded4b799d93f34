// Hidden states of the last pass: a target's, which its draft head reads, and those of a draft head. Rows of a head are
// made of a token and a state. EAGLE-3 has an encoder that makes states of the target's hidden states (llama.cpp:
// src/models/eagle3.cpp). MTP layers read the target's last state as it is (the graph_mtp of src/models/hy-v3.cpp and
// others).
#pragma once

#include <span>
#include <vector>

#include "model/head_states.h"
#include "model_context.h"
#include "row_batch.h"

namespace duo {

// What it is made of must outlive it.
class hidden_states : public head_states {
  public:
    hidden_states(const model_weights & w, model_context & context, const row_batch & batch)
        : weights_(w), context_(context), batch_(batch) {}

    void features(int32_t i_row, std::span<float> out) const override;
    void encode(std::span<const float> features, std::span<float> out) override;
    void state(int32_t i_row, std::span<float> out) const override;

    // The next batch of a divided pass replaces libllama's, so this keeps the features of the first n rows.
    void keep(size_t n);

  private:
    const model_weights & weights_;
    model_context &       context_;
    const row_batch &     batch_;
    std::vector<float>    kept_; // of the rows before batch_.i_first()
};

} // namespace duo
