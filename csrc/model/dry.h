// DRY ("don't repeat yourself"): penalties for tokens that would continue a repetition.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/messages.h"
#include "text/sampling.h"

namespace duo {

// Token sequences that end a repetition: for each first token, the tokens that must follow it. An empty sequence: the
// first token alone ends it.
using dry_breakers = std::unordered_map<token_id, std::vector<std::vector<token_id>>>;

// For one thread. The algorithm is that of llama.cpp's DRY sampler (p-e-w, pi6am; llama_sampler_init_dry), as a
// function of the text, so that it is right for any row of a pass, in any order.
class dry_search {
  public:
    struct found {
        token_id token   = no_token;
        int32_t  length  = 0;    // of the longest repetition that the token would continue
        float    penalty = 0.0f; // to subtract from the logit
    };

    // The tokens to penalise after `text`, each once, in the order of their ids; valid until the next call. The time is
    // linear in dry_penalty_last_n.
    std::span<const found> penalties(std::span<const token_id> text, const sampling_params & s,
                                     const dry_breakers & breakers);

  private:
    std::vector<int32_t> same_; // scratch: length of the match between each position and the end of the text
    std::vector<found>   found_;
};

} // namespace duo
