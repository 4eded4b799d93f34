// How often guesses were right, by level, by the draft's own estimate and by source.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "request.h"

namespace duo {

// Right and wrong guesses, older ones counting less.
struct odds {
    double yes = 0.0;
    double no  = 0.0;

    void                 add(bool right, double memory);
    [[nodiscard]] double share(double prior, double weight) const {
        return (yes + weight * prior) / (yes + no + weight);
    }
};

// Owned by the verify worker. Greedy and sampled texts have a record each: the same draft agrees differently in them.
class guess_record {
  public:
    // The best guess at level i (0: below the root), the ones above it right. fresh: the root was no guess itself.
    void on_guess(int32_t i, bool right, bool fresh);
    // Any child of an accepted node: was it the one, given the chance that the draft saw for it?
    void on_child(float logp, bool right);
    void on_ngram(int32_t i, bool right); // i-th token of an n-gram's continuation, the ones before it right

    [[nodiscard]] double acceptance(int32_t i) const;               // a_i, 0..1: of the best guess at level i
    [[nodiscard]] double acceptance(int32_t i, double above) const; // the same, given that of level i - 1
    [[nodiscard]] double acceptance_fresh() const;                  // a_0 where the draft had not foreseen the root
    [[nodiscard]] double chance(float logp) const;                  // what the draft's own estimate is worth, 0..1
    [[nodiscard]] double ngram_chance(int32_t i) const;

    // Calls f(odds &) for each pair of counts, always in the same order.
    template <typename Self, typename F> static void each(Self & self, const F & f) {
        for (auto & o : self.level_) {
            f(o);
        }
        for (auto & o : self.ngram_) {
            f(o);
        }
        for (auto & o : self.bin_) {
            f(o);
        }
        f(self.fresh_);
    }

  private:
    static constexpr int32_t n_bins = 25; // of a guess's own log-odds, from -6 to 6

    static int32_t bin(float logp);

    std::array<odds, n_draft_cap> level_{};
    std::array<odds, n_draft_cap> ngram_{};
    std::array<odds, n_bins>      bin_{};
    odds                          fresh_{};
};

} // namespace duo
