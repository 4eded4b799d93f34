// From a row of logits to candidates: llama.cpp's filter chain, then the shared noise (csrc/model/README.md).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <llama.h>

#include "grammar.h"
#include "logit_changes.h"
#include "model/filters.h"
#include "model/token_model.h"
#include "model/top_logits.h"
#include "text/sampling.h"

namespace duo {

// For one thread. The result is a function of the arguments: `text` has the past that penalties, DRY and grammar need.
// logit_changes changes the row, sampler.cpp chooses from it, sampler_grammar.cpp knows what may follow, and
// sampler_chances.cpp tells the distribution.
class sampler {
  public:
    // Only ids below n_vocab are candidates. with_logp (for a draft): each candidate has the log of the chance that the
    // target, which uses the same noise, chooses it.
    sampler(const llama_vocab * vocab, int32_t n_vocab, bool with_logp);

    // logits: [n_vocab] or longer; changed during the call and restored at its end. Otherwise like
    // token_model::candidates.
    int32_t candidates(float * logits, const sampling_params & sampling, std::span<const token_id> text,
                       std::span<candidate> out);

    // Like token_model::chances; logits as for candidates(). A draft that has given up the grammar ignores it.
    void chances(float * logits, const sampling_params & sampling, std::span<const token_id> text,
                 std::vector<candidate> & out);

    // Forbidden tokens get -inf. logits: [n_vocab] or longer.
    void keep_allowed(float * logits, const sampling_params & sampling, std::span<const token_id> text);

    // Whether it is set up for these parameters. Otherwise the next row takes longer: a grammar is read and follows the
    // whole text, and forbidden tokens are looked for in the vocabulary.
    [[nodiscard]] bool stands_for(const sampling_params & sampling) const { return ready_ && params_ == sampling; }
    // How often it was set up.
    [[nodiscard]] int64_t n_setups() const { return n_setups_; }
    // How many logits it has sorted.
    [[nodiscard]] int64_t n_sorted() const { return row_.n_sorted(); }

    // See token_model::logprobs.
    float logprobs(const float * logits, token_id token, std::span<candidate> out);

  private:
    struct chain_free {
        void operator()(llama_sampler * s) const { llama_sampler_free(s); }
    };
    using chain_ptr = std::unique_ptr<llama_sampler, chain_free>;

    void    prepare(const sampling_params & sampling);
    void    read(float * logits, const sampling_params & sampling, std::span<const token_id> text);
    int32_t chosen(const sampling_params & sampling, std::span<const token_id> text, std::span<candidate> out);
    void    look(const kept_bound & bound);
    void    look_for_kept(const sampling_params & sampling, size_t n_text, bool in_order);
    void    filter(const sampling_params & sampling, size_t n_text);
    void    score(const sampling_params & sampling, std::span<const token_id> text, size_t n_own);
    void    weigh(const sampling_params & sampling);
    void    sort(size_t n);
    int32_t rank(const sampling_params & sampling, std::span<candidate> out);
    bool    grammar_too_slow();
    bool    any_kept(const std::vector<llama_token_data> & some) const;
    void    stand_behind(const sampling_params & sampling, std::span<const token_id> text);
    void    look_for_allowed(size_t k);
    int32_t held(const sampling_params & sampling, std::span<const token_id> text, size_t k, std::span<candidate> out);

    const llama_vocab * vocab_;
    const int32_t       n_vocab_;
    const bool          with_logp_;

    bool                   ready_ = false;
    sampling_params        params_;       // the parameters for which the members below were made
    chain_ptr              filter_;       // top-p, min-p
    std::optional<grammar> grammar_;      // a draft may give it up: grammar_too_slow()
    int64_t                n_held_   = 0; // number of times the grammar was used
    int64_t                held_us_  = 0; // CPU time for cloning its states
    int64_t                n_setups_ = 0;

    double     reach_       = 0.0;  // top-n-sigma: how far below the best logit of row_
    float      temperature_ = 0.0f; // of row_
    kept_bound bound_;              // of what is looked at of row_

    logit_changes                 changes_;
    candidate_filters             filters_;
    logit_row                     row_;
    std::vector<top_logit>        top_;     // scratch: the best of row_
    std::vector<llama_token_data> data_;    // scratch: candidates in the filter chain; p: score in the race
    std::vector<llama_token_data> first_;   // scratch: the first of them, for the grammar
    std::vector<llama_token_data> dropped_; // of a draft: candidates that its own filters drop
};

} // namespace duo
