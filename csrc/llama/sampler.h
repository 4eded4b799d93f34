// From a row of logits to candidates: llama.cpp's filter chain, then the shared noise (DESIGN: csrc/README.md,
// Sampling).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <llama.h>

#include "../core/sampling.h"
#include "../core/token_model.h"
#include "../core/top_logits.h"
#include "grammar.h"

namespace duo {

// One thread. What it answers is a function of its arguments: what penalties and grammar need of the past is in `text`.
class sampler {
  public:
    // Only ids below n_vocab are candidates. with_logp: each carries the log of the chance that the target, which has
    // the same noise, chooses it (a draft's do).
    sampler(const llama_vocab * vocab, int32_t n_vocab, bool with_logp);

    // logits: (n_vocab) or longer; changed while it runs, and then as they were. Otherwise as token_model::candidates.
    int32_t candidates(float * logits, const sampling_params & sampling, std::span<const token_id> text,
                       std::span<candidate> out);

    // As token_model::logprobs.
    float logprobs(const float * logits, token_id token, std::span<candidate> out);

  private:
    struct chain_free {
        void operator()(llama_sampler * s) const { llama_sampler_free(s); }
    };
    using chain_ptr = std::unique_ptr<llama_sampler, chain_free>;

    void    prepare(const sampling_params & sampling);
    void    read(float * logits, const sampling_params & sampling, std::span<const token_id> text);
    void    change(float * logits, token_id token, float to);
    void    penalise(float * logits, const sampling_params & sampling, std::span<const token_id> text);
    int32_t chosen(const sampling_params & sampling, std::span<const token_id> text, std::span<candidate> out);
    void    look(size_t k);
    void    score(const sampling_params & sampling, std::span<const token_id> text);
    void    sort(size_t n);
    int32_t rank(const sampling_params & sampling, std::span<candidate> out);
    bool    too_dear();
    int32_t held(const sampling_params & sampling, std::span<const token_id> text, size_t k, std::span<candidate> out);

    const llama_vocab * vocab_;
    const int32_t       n_vocab_;
    const bool          with_logp_;

    bool                                    ready_ = false;
    sampling_params                         params_;      // what the members below were made for
    std::vector<std::pair<token_id, float>> bias_;        // logit bias, and -inf for what must not come
    chain_ptr                               filter_;      // top-p, min-p, temperature
    std::optional<grammar>                  grammar_;     // a draft's may be given up: too_dear()
    int64_t                                 n_held_  = 0; // times that it was asked
    int64_t                                 held_us_ = 0; // that this took, its states being cloned

    logit_row                     row_;
    std::vector<top_logit>        before_; // scratch: logits that bias and penalties have changed, as they were
    std::vector<int32_t>          counts_; // scratch: occurrences of each token; all 0 between calls
    std::vector<top_logit>        top_;    // scratch: the best of row_
    std::vector<llama_token_data> data_;   // scratch: candidates on their way through the chain; p: what they race by
    std::vector<llama_token_data> first_;  // scratch: the first of them, on their way through the grammar
};

} // namespace duo
