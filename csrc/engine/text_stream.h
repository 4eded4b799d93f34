// Turns chunks into text: whole UTF-8 characters, and nothing that may still become a stop string.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "model/token_model.h"
#include "text/request.h"

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

// The reader's side of one request: its chunks become text. One thread at a time.
class text_stream {
  public:
    text_stream(const token_model & model, int32_t n_logprobs) : model_(model), n_logprobs_(std::max(0, n_logprobs)) {}

    // The target's next message. True: `out` is a chunk of text.
    bool take(const chunk_msg & msg, text_chunk & out);

  private:
    std::string release(size_t n_keep);

    const token_model & model_;
    const int32_t       n_logprobs_;
    std::string         bytes_;              // not yet given out
    text_chunk          pending_;            // a token whose alternatives have not all come
    int32_t             n_alternatives_ = 0; // that have come
};

} // namespace duo
