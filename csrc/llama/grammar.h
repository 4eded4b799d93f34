// What a text may go on with: llama.cpp's grammar sampler (GBNF), asked about any text that was generated, in any
// order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <llama.h>

#include "../core/messages.h"

namespace duo {

// One thread. The answer is a function of (grammar, generated text); states behind earlier texts are kept, and cloned
// forward from the longest one that the text begins with.
class grammar {
  public:
    // n_states: texts whose states are kept; 1 is best for a text that only grows. Throws duo::error if llama.cpp
    // cannot read `gbnf`.
    grammar(const llama_vocab * vocab, const std::string & gbnf, size_t n_states);

    // The text that the calls below are about: generated tokens, without the prompt.
    void stand_behind(std::span<const token_id> generated);

    // Leaves the tokens that may follow, in their order.
    void keep_allowed(std::vector<llama_token_data> & tokens);

    // The text may end here. With a vocabulary that has no token for the end, it is only known to end where nothing
    // else may follow, and the answer is true.
    bool complete();

    // Whether llama.cpp reads it. Without a vocabulary a grammar that names tokens (<think>) is not read.
    static bool reads(const llama_vocab * vocab, const std::string & gbnf);

  private:
    struct sampler_free {
        void operator()(llama_sampler * s) const { llama_sampler_free(s); }
    };
    using sampler_ptr = std::unique_ptr<llama_sampler, sampler_free>;

    struct state {
        std::vector<token_id> text; // behind which it stands
        sampler_ptr           at;
        std::string           tail;           // bytes of a character whose rest is missing
        bool                  over   = false; // an end, or a token that the grammar does not allow: nothing may follow
        uint64_t              t_used = 0;
    };

    state & nearest(std::span<const token_id> generated);
    void    accept(state & s, token_id token);
    bool    may_be_text(const state & s, token_id token);

    const llama_vocab * const vocab_;
    const size_t              n_states_;
    sampler_ptr               start_;
    token_id                  end_ = no_token; // one of those that end a text
    std::vector<state>        states_;
    size_t                    i_here_ = 0; // of states_: what stand_behind() found
    uint64_t                  clock_  = 0;

    std::string                   bytes_; // scratch
    std::vector<llama_token_data> asked_; // scratch: what goes through the grammar
};

} // namespace duo
