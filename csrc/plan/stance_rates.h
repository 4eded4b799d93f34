// What each stance would bring, in tokens per microsecond of all texts, by what was measured. With k guesses for each
// text, E(k) = 1 + a_0 + a_0 a_1 + ... is the number of tokens that it gets from a pass.
#pragma once

#include <cstdint>

#include "pair_profile.h"

namespace duo {

// What is generated: how many texts, and what their options and models allow.
struct rate_terms {
    int32_t    n_texts  = 1;
    int32_t    n_max    = 0;     // guesses for a text in a pass
    int32_t    n_min    = 0;     // fewer are not worth verifying
    int32_t    n_levels = 1;     // see pair_prior
    bool       copy     = false; // what was right before a wrong guess is evaluated again (undo_kind::copy)
    guess_kind kind     = guess_kind::noise;
};

class stance_rates {
  public:
    struct way {
        int32_t k    = 0;   // guesses for each text; 0: none pays
        double  rate = 0.0; // tokens per microsecond
    };
    struct ways {
        way hopeful; // turn-taking with the best k, if unmeasured widths are cheap
        way turns;   // the same without that assumption
        way ahead;   // running ahead
    };

    // The profile must outlive it.
    explicit stance_rates(const pair_profile & profile) : profile_(profile) {}

    void                             begin(const rate_terms & terms);
    [[nodiscard]] const rate_terms & terms() const { return terms_; }

    [[nodiscard]] const ways & now() const;
    // A pass with one row for each text; 0: nothing measured yet.
    [[nodiscard]] double plain_us() const { return profile_.pass_us(terms_.n_texts, false); }
    [[nodiscard]] double plain() const { return plain_us() > 0.0 ? terms_.n_texts / plain_us() : 0.0; }
    // A step of the draft for all texts. With turn-taking, beside is false.
    [[nodiscard]] double step_us(bool beside) const { return profile_.step_us(terms_.n_texts, beside); }
    // Of the draft, for so many levels.
    [[nodiscard]] int32_t n_steps(int32_t n_levels) const { return steps_for(n_levels, terms_.n_levels); }

    [[nodiscard]] const guess_record & guesses() const { return profile_.guesses(terms_.kind); }
    // Of the best guess at a level, 0..1. age: of a draft head's guess.
    [[nodiscard]] double acceptance(int32_t level, int32_t age) const;

    // True if turn-taking could pay with a good draft. How good the draft is shows only when it is tried.
    [[nodiscard]] bool turns_could_pay() const;
    // What verification would bring at best, in tokens per pass and text. It is optimistic, as it assumes that the
    // draft's nodes are ready. r: rate of the texts so far.
    [[nodiscard]] double gain(double r, bool beside) const;
    // With turn-taking the target waits for each step: the tokens that could be had while the draft makes one more
    // guess for a text and the target verifies it.
    [[nodiscard]] double price_of_guess(double r) const;
    // Tokens that could be had in the time that n more rows of each text add to a pass.
    [[nodiscard]] double price_of_rows(double r, int32_t n) const;
    // Microseconds that a draft saves over the next n_tokens, by what is known.
    [[nodiscard]] double saved_us(int32_t n_tokens) const;

  private:
    [[nodiscard]] ways   find() const;
    [[nodiscard]] double tokens_ahead(int32_t k, double tokens) const;
    void                 find_ahead(way & best, int32_t k, double tokens, double foreseen, double more_us) const;
    // Of a pass with k guesses for each text.
    [[nodiscard]] double pass_us(int32_t k, bool beside, bool hopeful = true) const {
        return profile_.pass_us(terms_.n_texts * (k + 1), beside, hopeful);
    }

    const pair_profile & profile_;
    rate_terms           terms_;
    mutable ways         ways_; // as of the profile's change number ways_at_
    mutable int64_t      ways_at_ = -1;
};

} // namespace duo
