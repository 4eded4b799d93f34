// How many of the experts that passes needed are among the first that a predictor names.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace duo {

class expert_recall {
  public:
    // Of one layer of a pass. ranked: likeliest first.
    void add(std::span<const int32_t> ranked, const std::vector<bool> & needed) {
        n_needed_ += uint64_t(std::ranges::count(needed, true));
        right_.resize(std::max(right_.size(), ranked.size()));
        for (size_t i = 0; i < ranked.size(); ++i) {
            right_[i] += needed[size_t(ranked[i])] ? 1 : 0;
        }
    }

    // Of the first n; 0 if no pass was seen.
    [[nodiscard]] double at(size_t n) const {
        uint64_t n_right = 0;
        for (size_t i = 0; i < std::min(n, right_.size()); ++i) {
            n_right += right_[i];
        }
        return n_needed_ == 0 ? 0.0 : double(n_right) / double(n_needed_);
    }

  private:
    uint64_t              n_needed_ = 0;
    std::vector<uint64_t> right_; // by rank
};

} // namespace duo
