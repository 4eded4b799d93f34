// What changes the logits of a row before candidates are chosen: bias, penalties, DRY.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <llama.h>

#include "model/dry.h"
#include "model/top_logits.h"
#include "text/sampling.h"

namespace duo {

// For one thread. Bias, penalties and DRY change some tens of logits, and copying the row would cost more than choosing
// from it. So the row itself is changed and then restored.
class logit_changes {
  public:
    // Restores a row at the end of a scope.
    class restored {
      public:
        restored(logit_changes & changes, float * logits) : changes_(changes), logits_(logits) {}
        ~restored() { changes_.restore(logits_); }
        restored(const restored &)             = delete;
        restored & operator=(const restored &) = delete;

      private:
        logit_changes & changes_;
        float *         logits_;
    };

    // Tokens from n_vocab on have no logit.
    logit_changes(const llama_vocab * vocab, int32_t n_vocab) : vocab_(vocab), n_vocab_(n_vocab) {}

    // Rows are changed by these parameters from now on. It may read the text of every token.
    void prepare(const sampling_params & sampling);
    // logits: [n_vocab]. sampling: as prepared. text: the past, for penalties and DRY.
    void apply(float * logits, const sampling_params & sampling, std::span<const token_id> text);

  private:
    void prepare_dry(const sampling_params & sampling);
    void change(float * logits, token_id token, float to);
    void penalise(float * logits, const sampling_params & sampling, std::span<const token_id> text);
    void discourage(float * logits, const sampling_params & sampling, std::span<const token_id> text);
    void restore(float * logits) noexcept;

    const llama_vocab * vocab_;
    const int32_t       n_vocab_;

    std::vector<std::pair<token_id, float>> bias_;     // -inf for forbidden tokens
    std::optional<dry_breakers>             breakers_; // of breakers_of_, if DRY has needed them
    std::vector<std::string>                breakers_of_;
    dry_search                              dry_;
    std::vector<top_logit>                  before_; // the logits that were changed, with their old values
    std::vector<int32_t>                    counts_; // scratch: occurrences of each token; all 0 between calls
};

} // namespace duo
