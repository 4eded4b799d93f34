// Counts how often guesses were right: by level, by the draft's own estimate, by source, and, of a draft head, by age.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "text/request.h"
#include "tree/sharpness.h"
#include "trust.h"

namespace duo {

// Right and wrong guesses. Older ones count less.
struct odds {
    double yes = 0.0;
    double no  = 0.0;

    void                 add(bool right, double memory);
    [[nodiscard]] double share(double prior, double weight) const {
        return (yes + weight * prior) / (yes + no + weight);
    }
};

// Owned by the verify worker. Texts of each guess_kind have a record of their own.
class guess_record {
  public:
    // The best guess at level i (0: below the root), where the guesses above it were right. fresh: the root itself had
    // not been guessed. age: of a draft head's guess (node_msg::age).
    void on_guess(int32_t i, bool right, bool fresh, int32_t age = no_age);
    // Any child of an accepted node: whether it was right, by the chance that the draft gave it.
    void on_child(float logp, bool right, int32_t age = no_age);
    // All children of such a node together, and which of them was right (-1: none).
    void on_choice(std::span<const float> logp, int32_t right);
    // The i-th token of an n-gram's continuation, where the tokens before it were right. n_match: tokens of the n-gram.
    void on_ngram(int32_t n_match, int32_t i, bool right);

    [[nodiscard]] double acceptance(int32_t i) const;               // a_i, 0..1: of the best guess at level i
    [[nodiscard]] double acceptance(int32_t i, double above) const; // the same, given that of level i - 1
    [[nodiscard]] double acceptance_fresh() const;                  // a_0 if the root had not been guessed
    // The draft's own estimate, corrected by what was counted; 0..1.
    [[nodiscard]] double chance(float logp, int32_t age = no_age) const;

    // Where an age is counted: 0 .. n_ages - 1.
    static size_t place_of(int32_t age);

    // Guesses of a draft head were counted, so the best one is better estimated by its age than by its level.
    [[nodiscard]] bool   has_ages() const { return best_of_age_[0].yes + best_of_age_[0].no > 0.0; }
    [[nodiscard]] double acceptance_of_age(int32_t age) const; // of the best guess; 0..1
    // The same for the decision whether such guesses are made. What is not made is not counted, so a few wrong ones
    // must not end it.
    [[nodiscard]] double hope_of_age(int32_t age) const;
    [[nodiscard]] double ngram_chance(int32_t n_match, int32_t i) const;

    [[nodiscard]] const sharpness & sharp() const { return sharp_; } // of the draft's own estimates
    [[nodiscard]] const trust &     trusted() const { return trust_; }
    void                            restore(const sharpness & sharp, const trust & trusted) {
        sharp_ = sharp;
        trust_ = trusted;
    }

    // Calls f(odds &) for each pair of counts, always in the same order.
    template <typename Self, typename F> static void each(Self & self, const F & f) {
        for (auto & o : self.level_) {
            f(o);
        }
        for (auto & of_length : self.ngram_) {
            for (auto & o : of_length) {
                f(o);
            }
        }
        for (auto & o : self.bin_) {
            f(o);
        }
        f(self.fresh_);
        for (auto & o : self.best_of_age_) {
            f(o);
        }
        for (auto & of_age : self.bin_of_age_) {
            for (auto & o : of_age) {
                f(o);
            }
        }
    }

  private:
    static constexpr int32_t n_bins    = 25; // of a guess's own log-odds, from -6 to 6
    static constexpr int32_t n_lengths = 6;  // of n-grams: up to 2 tokens, 3, 4 or 5, 6 to 8, 9 to 11, 12 and more
    static constexpr int32_t n_deep    = 12; // tokens of a continuation; further ones are like the last

    static int32_t bin(float logp);
    static size_t  length_of(int32_t n_match);

    [[nodiscard]] double of_age(int32_t age, double weight) const;

    std::array<odds, n_draft_cap>                   level_{};
    std::array<std::array<odds, n_deep>, n_lengths> ngram_{};
    std::array<odds, n_bins>                        bin_{};
    odds                                            fresh_{};
    sharpness                                       sharp_{};
    trust                                           trust_{};
    std::vector<float>                              estimates_; // scratch: the draft's, of siblings
    std::array<odds, n_ages>                        best_of_age_{};
    std::array<std::array<odds, n_bins>, n_ages>    bin_of_age_{};
};

} // namespace duo
