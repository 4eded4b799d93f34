// How the target decides about guesses: the rules behind --accept. README.md says what each keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "text/sampling.h"
#include "token_model.h"

namespace duo {

// What the target knows of the guesses below one row.
struct guesses_below {
    std::span<const token_id>  tokens; // in the order in which they are tried
    std::span<const candidate> shares; // rejection: the distribution they were drawn from, without replacement
};

// A chain of single draws, one for each row: what the target would draw from, and what the draft drew from, and drew.
struct block_level {
    std::vector<candidate> chances;
    std::vector<candidate> shares;
    token_id               guess = no_token;
};

struct block_verdict {
    size_t   n_accepted = 0;        // of the levels' guesses
    token_id next       = no_token; // what follows them; no_token: all were accepted
};

// One decision of each kind at a time; owned by one worker. The results are functions of the arguments.
class acceptance {
  public:
    static constexpr size_t n_shares_most = 16; // tokens that a draft draws from

    // The rule needs to know what the draft drew its guesses from.
    [[nodiscard]] static bool draws(const sampling_params & s) { return s.rule() == accept_rule::rejection; }

    // Draft: draws at most n tokens from the n_shares_most best of `chances`, which are cut to these and scaled to sum
    // to 1. text: all tokens up to and including the row's. out: in the order of drawing, with the log of the chance
    // that the target accepts this one.
    void draw(const sampling_params & s, std::span<const token_id> text, std::vector<candidate> & chances, size_t n,
              std::vector<candidate> & out);

    // Target: the token that follows a row. chances: its distribution (token_model::chances), not empty. pos: number of
    // tokens before it.
    token_id choose(const sampling_params & s, size_t pos, std::span<const candidate> chances,
                    const guesses_below & guesses);

    // The same for a whole chain, by block verification (Sun et al., arXiv 2403.10444): a guess that is less likely
    // than the draft thought may be made up for by those after it, so that more of them are accepted on average. pos:
    // number of tokens before the first guess.
    block_verdict choose(const sampling_params & s, size_t pos, std::span<const block_level> levels);

    // Typical acceptance: guesses of a higher probability are accepted. min(threshold, alpha * exp(-entropy)), with the
    // entropy in nats (Cai et al., arXiv 2401.10774, section 2.3.1).
    [[nodiscard]] static double typical_limit(const sampling_params & s, std::span<const candidate> chances);

  private:
    token_id                      rejection(const sampling_params & s, size_t pos, std::span<const candidate> chances,
                                            const guesses_below & guesses);
    double                        set_rest(const block_level & level, double scale);
    [[nodiscard]] token_id        own_of_rest(const sampling_params & s, size_t pos);
    [[nodiscard]] static token_id own(const sampling_params & s, size_t pos, std::span<const candidate> chances);

    std::vector<candidate> left_;  // scratch: what the target's distribution has left
    std::vector<double>    mass_;  // of left_
    std::vector<candidate> order_; // scratch of draw()
};

} // namespace duo
