// Hidden states of the target on their way to a draft head: rows of floats, each with its token. A `features` message
// in the ring of verdicts says how many rows have come and for which positions.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/messages.h"

namespace duo {

// Bounded, for one producer thread and one consumer thread; neither ever waits. The message orders the rows' bytes: the
// producer writes rows before it sends it. The consumer's release of i_read_ hands the slots back.
class feature_ring {
  public:
    feature_ring(int32_t n_features, size_t n_rows)
        : n_features_(size_t(n_features)), tokens_(n_rows), rows_(n_rows * n_features_) {}

    [[nodiscard]] int32_t n_features() const { return int32_t(n_features_); }

    // Producer: there is room for n rows more.
    [[nodiscard]] bool has_room(size_t n) const noexcept {
        return i_write_ + n - i_read_.load(std::memory_order_acquire) <= tokens_.size();
    }
    // Producer, after has_room(): the next row, to be filled with the hidden states of `token`.
    [[nodiscard]] std::span<float> add(token_id token) noexcept {
        const size_t i = i_write_++ % tokens_.size();
        tokens_[i]     = token;
        return {rows_.data() + i * n_features_, n_features_};
    }
    // Producer: the message about the last n rows could not be sent.
    void take_back(size_t n) noexcept { i_write_ -= n; }

    // Consumer: calls f(token, row) for each of the n rows of a message. They are taken even if f throws.
    template <typename F> void take(size_t n, F f) {
        const uint64_t from = i_read_.load(std::memory_order_relaxed);
        struct taken {
            ~taken() { i_read.store(end, std::memory_order_release); }
            std::atomic<uint64_t> & i_read;
            uint64_t                end;
        } const all{i_read_, from + n};
        for (uint64_t i = from; i < from + n; ++i) {
            const size_t at = i % tokens_.size();
            f(tokens_[at], std::span<const float>(rows_.data() + at * n_features_, n_features_));
        }
    }

  private:
    const size_t          n_features_;
    std::vector<token_id> tokens_;
    std::vector<float>    rows_; // [n_rows][n_features]

    uint64_t              i_write_ = 0; // producer's
    std::atomic<uint64_t> i_read_{0};
};

} // namespace duo
