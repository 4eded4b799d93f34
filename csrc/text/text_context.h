// What the target sees of a text: all of it, or, after context shifts, its first tokens and its last ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/messages.h"
#include "request.h"

namespace duo {

// The tokens at the positions of the target's cache. Their places here are these positions, so a token's position is
// not its index in the text any more after a shift. Belongs to the verify worker's thread.
class text_context {
  public:
    // n_most: tokens that the context holds.
    void begin(std::span<const token_id> prompt, const context_shift & how, int32_t n_most);
    void add(token_id token) { tokens_.push_back(token); }

    [[nodiscard]] const std::vector<token_id> & tokens() const { return tokens_; }

    // No token can follow any more.
    [[nodiscard]] bool is_full() const { return int32_t(tokens_.size()) >= n_most_; }
    // It is full, and is to be shifted before the next pass.
    [[nodiscard]] bool shift_due() const { return how_.on && is_full(); }
    // Tokens that may still follow.
    [[nodiscard]] int32_t n_room() const { return n_most_ - int32_t(tokens_.size()) - (how_.on ? 1 : 0); }

    // Tokens before those that are left out, and how many these are.
    [[nodiscard]] int32_t n_first() const { return n_first_; }
    [[nodiscard]] int32_t n_left_out() const { return n_left_out_; }

    // While shift_due(): the tokens that go are those from n_first() on. As in llama-server (server-context.cpp): half
    // of what is behind the tokens that stay.
    [[nodiscard]] int32_t n_next_shift() const;
    void                  shift();

  private:
    std::vector<token_id> tokens_;
    context_shift         how_;
    int32_t               n_most_     = 0;
    int32_t               n_first_    = 0;
    int32_t               n_left_out_ = 0;
};

} // namespace duo
