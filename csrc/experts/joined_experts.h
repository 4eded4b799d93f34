// Several predictors, each weighted by how often it was right so far, in this layer and at this rank.
#pragma once

#include <vector>

#include "expert_predictor.h"
#include "rank_record.h"

namespace duo {

class joined_experts final : public expert_predictor {
  public:
    // The parts must outlive it.
    joined_experts(const expert_shape & shape, std::vector<expert_predictor *> parts);

    [[nodiscard]] size_t n_parts() const { return parts_.size(); }

    // The chances that the row needs the experts. 0: it is hardly ever needed, or nothing is known.
    void score(int32_t layer, size_t row, token_id token, std::span<float> out) const override;
    // By one part alone.
    void score_by(size_t part, int32_t layer, size_t row, token_id token, std::span<float> out) const;
    // Teaches the parts, too.
    void learn(int32_t layer, std::span<const token_id> tokens, const expert_choice & choice) override;

  private:
    struct part {
        expert_predictor *       predictor;
        std::vector<rank_record> records; // by layer
        std::vector<int32_t>     ranked;  // what it said last
    };

    void        rank(part & p, int32_t layer, size_t row, token_id token) const;
    void        rank_all(int32_t layer, size_t row, token_id token) const;
    static void chances(const rank_record & record, std::span<const int32_t> ranked, std::span<float> out);

    float                        share_;
    size_t                       n_ranks_;
    mutable std::vector<part>    parts_;
    std::vector<rank_record>     records_; // of all together, by layer
    mutable std::vector<float>   scores_;  // scratch, of one part
    mutable std::vector<float>   odds_;    // scratch, of all
    mutable std::vector<int32_t> ranked_;  // scratch, of all
    std::vector<bool>            chosen_;  // scratch, of a row
};

} // namespace duo
