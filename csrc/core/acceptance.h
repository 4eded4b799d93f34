// How the target decides about guesses: the rules behind --accept. csrc/README.md, "Acceptance", says what each keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sampling.h"
#include "token_model.h"

namespace duo {

// What the target knows of the guesses below one row.
struct guesses_below {
    std::span<const token_id>  tokens; // in the order in which they are tried
    std::span<const candidate> shares; // rejection: the distribution they were drawn from, without replacement
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

    // Typical acceptance: guesses of a higher probability are accepted. min(threshold, alpha * exp(-entropy)), with the
    // entropy in nats (Cai et al., arXiv 2401.10774, section 2.3.1).
    [[nodiscard]] static double typical_limit(const sampling_params & s, std::span<const candidate> chances);

  private:
    token_id                      rejection(const sampling_params & s, size_t pos, std::span<const candidate> chances,
                                            const guesses_below & guesses);
    [[nodiscard]] static token_id own(const sampling_params & s, size_t pos, std::span<const candidate> chances);

    std::vector<candidate> left_;  // scratch: what the target's distribution has left
    std::vector<double>    mass_;  // of left_
    std::vector<candidate> order_; // scratch of draw()
};

} // namespace duo
