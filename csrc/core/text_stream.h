// Turns chunks into text: whole UTF-8 characters, and nothing that may still become a stop string.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "request.h"
#include "token_model.h"
#include "wires.h"

namespace duo {

struct text_chunk {
    std::string            text; // valid UTF-8; may be empty
    token_id               token      = no_token;
    bool                   from_draft = false;
    finish_reason          finish     = finish_reason::none; // set on the last one, which carries no token
    float                  logp       = 0.0f;
    std::vector<candidate> top; // alternatives, best first
    int64_t                t_us = 0;
};

// The reader's side of one request. All members belong to the reading thread.
class text_stream {
  public:
    text_stream(const token_model & model, wires & w) : model_(model), wires_(w) {}

    void begin(int32_t n_logprobs) {
        bytes_.clear();
        has_pending_ = false;
        n_logprobs_  = n_logprobs < 0 ? 0 : n_logprobs;
    }

    // Waits until `deadline_us` for the next chunk. False: nothing came.
    bool next(text_chunk & out, int64_t deadline_us);

  private:
    bool        take(const chunk_msg & msg, text_chunk & out);
    std::string release(size_t n_keep);

    const token_model & model_;
    wires &             wires_;
    std::string         bytes_;   // not yet given out
    text_chunk          pending_; // a token whose alternatives have not all come
    bool                has_pending_ = false;
    int32_t             n_logprobs_  = 0;
};

// Bytes at the end of `s` that begin a UTF-8 character whose rest is missing: 0..3.
size_t utf8_incomplete(const std::string & s) noexcept;

// Invalid bytes replaced by U+FFFD, one for each maximal invalid part (Unicode 16, 3.9).
std::string utf8_valid(const std::string & s);

} // namespace duo
