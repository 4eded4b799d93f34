// Guesses from earlier texts (ngram-mod): what the models have read and written before, and how it went on.
//
// llama.cpp's pool (common/ngram-mod.h) maps a hash of n_match tokens to the token behind them. This one keeps the
// tokens. So the longest match wins, and different n-grams are never taken for one another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/messages.h"
#include "ngram_index.h"

namespace duo {

// For one thread.
class ngram_pool {
  public:
    static constexpr size_t  n_tokens_most = size_t(1) << 17; // of all texts; the oldest half goes then
    static constexpr int32_t n_match_least = 8;               // tokens; shorter matches of other texts are mere chance
    static constexpr int32_t n_match_most  = 24;              // of longer ones, this end counts

    // A text that has ended. Its first n_known tokens were probably part of an earlier one. Without memory for it, the
    // pool is empty afterwards.
    void add(std::span<const token_id> text, size_t n_known) noexcept;

    // At most n_max tokens to follow text + tail, from where an earlier text reads like their end. False: nowhere.
    bool propose(std::span<const token_id> text, std::span<const token_id> tail, int32_t n_max,
                 ngram_proposal & out) const;

    [[nodiscard]] size_t size() const { return book_.size(); } // tokens, with one behind each text

  private:
    static constexpr token_id     behind = -1; // a text; no model writes it
    static constexpr ngram_params params{.kind = ngram_kind::map_k, .size_n = n_match_most, .size_m = 1024};
    static constexpr ngram_keys   keys{.shortest = n_match_least, .n_lengths = 5}; // 8, 12, ..., 24: each costs memory

    [[nodiscard]] bool has(std::span<const token_id> text) const;

    std::vector<token_id>         book_;
    ngram_index                   index_;
    mutable std::vector<token_id> end_; // scratch
};

} // namespace duo
