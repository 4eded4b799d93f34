// How many passes the target has made, how wide they were, and what the pair did meanwhile. For figures.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/messages.h"

namespace duo {

constexpr int32_t n_widths_counted = 64; // rows; wider passes are counted together

// What a pass was for: texts that were written in one of the stances, or only the reading of prompts.
enum class pass_kind : uint8_t { ahead, by_turn, rest, reading, none };

constexpr size_t n_pass_kinds = size_t(pass_kind::none);

constexpr pass_kind pass_kind_of(stance s) {
    return s == stance::ahead ? pass_kind::ahead : s == stance::by_turn ? pass_kind::by_turn : pass_kind::rest;
}

// Since the models were loaded.
struct pass_counts {
    std::array<int64_t, size_t(n_widths_counted) + 1> by_width{};  // passes by their rows; [0]: wider ones
    int64_t                                           n_rows  = 0; // in all passes
    int64_t                                           n_texts = 0; // in all passes
    std::array<int64_t, n_pass_kinds>                 kind_us{};   // while there were texts; waits are included
};

// The target's worker writes, any thread may read. Relaxed order is enough: the figures guard no other data.
class pass_board {
  public:
    // Only the worker's thread: these two.
    void count(size_t n_rows, size_t n_texts) {
        add(counts_[n_rows <= size_t(n_widths_counted) ? n_rows : 0], 1);
        add(n_rows_, int64_t(n_rows));
        add(n_texts_, int64_t(n_texts));
    }
    void spend(pass_kind kind, int64_t us) { add(us_[size_t(kind)], us); }

    [[nodiscard]] pass_counts read() const {
        pass_counts c{.n_rows  = n_rows_.load(std::memory_order_relaxed),
                      .n_texts = n_texts_.load(std::memory_order_relaxed)};
        for (size_t i = 0; i < counts_.size(); ++i) {
            c.by_width[i] = counts_[i].load(std::memory_order_relaxed);
        }
        for (size_t i = 0; i < us_.size(); ++i) {
            c.kind_us[i] = us_[i].load(std::memory_order_relaxed);
        }
        return c;
    }

  private:
    using counter = std::atomic<int64_t>;

    static void add(counter & x, int64_t d) {
        x.store(x.load(std::memory_order_relaxed) + d, std::memory_order_relaxed);
    }

    std::array<counter, size_t(n_widths_counted) + 1> counts_{};
    counter                                           n_rows_{0};
    counter                                           n_texts_{0};
    std::array<counter, n_pass_kinds>                 us_{}; // by pass_kind
};

} // namespace duo
