// How a text may continue: llama.cpp's grammar sampler (GBNF), for any generated texts in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <llama.h>

#include "base/messages.h"

namespace duo {

// For one thread. The answer is a function of (grammar, generated text). States after earlier texts are kept; a new
// state is cloned from that of the longest prefix and advanced.
class grammar {
  public:
    // n_states: number of texts whose states are kept; 1 is best for a text that only grows. Throws duo::error if
    // llama.cpp cannot read `gbnf`.
    grammar(const llama_vocab * vocab, const std::string & gbnf, size_t n_states);

    // Sets the text for the calls below: generated tokens, without the prompt.
    void stand_behind(std::span<const token_id> generated);

    // Removes the tokens that must not follow; the order stays.
    void keep_allowed(std::vector<llama_token_data> & tokens);

    // Whether the text may end here. Always true if the vocabulary has no end token; the text then ends only where
    // nothing else may follow.
    bool complete();

    // Whether llama.cpp can read the grammar. Without a vocabulary it cannot read one that names tokens (<think>).
    static bool reads(const llama_vocab * vocab, const std::string & gbnf);

  private:
    struct sampler_free {
        void operator()(llama_sampler * s) const { llama_sampler_free(s); }
    };
    using sampler_ptr = std::unique_ptr<llama_sampler, sampler_free>;

    struct state {
        std::vector<token_id> text; // the state is the one after this text
        sampler_ptr           at;
        std::string           tail;           // bytes of an incomplete character
        bool                  over   = false; // after an end or a forbidden token: nothing may follow
        uint64_t              t_used = 0;
    };

    state & nearest(std::span<const token_id> generated);
    void    accept(state & s, token_id token);
    bool    may_be_text(const state & s, token_id token);

    const llama_vocab * const vocab_;
    const size_t              n_states_;
    sampler_ptr               start_;
    token_id                  end_ = no_token; // one of the tokens that end a text
    std::vector<state>        states_;
    size_t                    i_found_ = 0; // index in states_ of the state that stand_behind() found
    uint64_t                  clock_   = 0;

    std::string                   bytes_; // scratch
    std::vector<llama_token_data> asked_; // scratch: tokens to check with the grammar
};

} // namespace duo
