#include "joined_experts.h"

#include <algorithm>

#include "ranking.h"

namespace duo {

namespace {

constexpr size_t n_rows_most = 8; // of a pass that records learn from: a prompt's many rows say little more

float odds_of(float chance) {
    return chance / (1.0f - chance);
}

} // namespace

// What stands behind four times as many experts as a row needs is hardly ever right.
joined_experts::joined_experts(const expert_shape & shape, std::vector<expert_predictor *> parts)
    : share_(std::min(shape.share(), 0.9f)), n_ranks_(size_t(std::min(4 * shape.n_used, shape.n_expert))),
      records_(size_t(shape.n_layer), rank_record(n_ranks_, size_t(shape.n_used), share_)),
      scores_(size_t(shape.n_expert)), odds_(size_t(shape.n_expert)), chosen_(size_t(shape.n_expert)) {
    for (expert_predictor * p : parts) {
        parts_.push_back({.predictor = p, .records = records_, .ranked = {}});
    }
}

void joined_experts::rank(part & p, int32_t layer, size_t row, token_id token) const {
    p.predictor->score(layer, row, token, scores_);
    rank_experts(scores_, n_ranks_, p.ranked);
}

// What all say, as if they were right or wrong independently of each other (naive Bayes): each multiplies the odds by
// what its rank has been worth. That orders experts well, but promises too much; so the chances come from a record,
// too.
void joined_experts::rank_all(int32_t layer, size_t row, token_id token) const {
    std::ranges::fill(odds_, odds_of(share_));
    bool any = false;
    for (part & p : parts_) {
        rank(p, layer, row, token);
        if (p.ranked.empty()) {
            continue;
        }
        any                        = true;
        const rank_record & record = p.records[size_t(layer)];
        const float         rest   = odds_of(record.rest());
        for (float & x : odds_) {
            x *= rest / odds_of(share_);
        }
        for (size_t i = 0; i < p.ranked.size(); ++i) {
            odds_[size_t(p.ranked[i])] *= odds_of(record.chance(i)) / rest;
        }
    }
    ranked_.clear();
    if (any) {
        rank_experts(odds_, n_ranks_, ranked_);
    }
}

void joined_experts::chances(const rank_record & record, std::span<const int32_t> ranked, std::span<float> out) {
    std::ranges::fill(out, 0.0f);
    for (size_t i = 0; i < ranked.size(); ++i) {
        out[size_t(ranked[i])] = record.chance(i);
    }
}

void joined_experts::score(int32_t layer, size_t row, token_id token, std::span<float> out) const {
    rank_all(layer, row, token);
    chances(records_[size_t(layer)], ranked_, out);
}

void joined_experts::score_by(size_t part, int32_t layer, size_t row, token_id token, std::span<float> out) const {
    rank(parts_[part], layer, row, token);
    chances(parts_[part].records[size_t(layer)], parts_[part].ranked, out);
}

void joined_experts::learn(int32_t layer, std::span<const token_id> tokens, const expert_choice & choice) {
    const size_t n = std::min(choice.n_rows(), n_rows_most);
    for (size_t i = 0; i < n; ++i) {
        const size_t row = i * choice.n_rows() / n;
        std::fill(chosen_.begin(), chosen_.end(), false);
        for (const int32_t expert : choice.of(row)) {
            chosen_[size_t(expert)] = true;
        }
        rank_all(layer, row, tokens[row]);
        if (!ranked_.empty()) {
            records_[size_t(layer)].add(ranked_, chosen_);
        }
        for (part & p : parts_) {
            if (!p.ranked.empty()) {
                p.records[size_t(layer)].add(p.ranked, chosen_);
            }
        }
    }
    for (const part & p : parts_) {
        p.predictor->learn(layer, tokens, choice);
    }
}

} // namespace duo
