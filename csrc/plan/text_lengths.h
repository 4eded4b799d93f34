// How many tokens a text will probably still get, by the lengths of earlier texts.
#pragma once

#include <algorithm>
#include <cstdint>

namespace duo {

class text_lengths {
  public:
    // A text has ended with so many tokens. One that was cut off at its limit says only that texts may be as long.
    void on_end(int32_t n_tokens, bool cut_off) {
        if (n_tokens > 0 && (!cut_off || n_tokens > whole())) {
            mean_ = mean_ == 0.0 ? n_tokens : mean_ + (n_tokens - mean_) / n_memory;
        }
    }

    // Tokens to come of a text that has n_written, at most n_limit. Limits are often far above the length of answers. A
    // text that is longer than those before it is expected to go on for as long as it already is.
    [[nodiscard]] int32_t to_come(int32_t n_written, int32_t n_limit) const {
        return std::min(n_limit, std::max(whole() - n_written, n_written));
    }

  private:
    static constexpr double n_memory = 4;   // texts of which the mean is
    static constexpr double n_first  = 256; // tokens; assumed of the first text

    [[nodiscard]] int32_t whole() const { return int32_t(mean_ == 0.0 ? n_first : mean_ + 0.5); }

    double mean_ = 0.0; // 0: no text has ended
};

} // namespace duo
