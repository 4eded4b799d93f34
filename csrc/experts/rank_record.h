// How often what a predictor ranks first, second, ... was chosen.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace duo {

class rank_record {
  public:
    // n: ranks that count. Before anything is known, the first n_used are wrong half as often as any expert, and others
    // right as often. share: how often any is chosen, below 1.
    rank_record(size_t n, size_t n_used, float share) : n_used_(n_used), share_(share), ranks_(n) {}

    // For one row; at most n are ranked. chosen: whether, by expert.
    void add(std::span<const int32_t> ranked, const std::vector<bool> & chosen) {
        const auto n_all   = std::ranges::count(chosen, true);
        int64_t    n_right = 0;
        for (size_t i = 0; i < ranked.size(); ++i) {
            const bool right = chosen[size_t(ranked[i])];
            ranks_[i].add(right ? 1.0f : 0.0f);
            n_right += right ? 1 : 0;
        }
        if (ranked.size() < chosen.size()) {
            rest_.add(float(n_all - n_right) / float(chosen.size() - ranked.size()));
        }
    }

    [[nodiscard]] float chance(size_t rank) const {
        return ranks_[rank].chance(rank < n_used_ ? (1.0f + share_) / 2.0f : share_);
    }
    // Of an expert that was not ranked, while others were.
    [[nodiscard]] float rest() const { return rest_.chance(share_); }

  private:
    static constexpr float old = 0.98f; // texts change

    struct count {
        float n     = 0.0f;
        float right = 0.0f;

        void add(float part) {
            n     = n * old + 1.0f;
            right = right * old + part;
        }
        [[nodiscard]] float chance(float before) const { return (right + before) / (n + 1.0f); }
    };

    size_t             n_used_;
    float              share_;
    std::vector<count> ranks_;
    count              rest_;
};

} // namespace duo
