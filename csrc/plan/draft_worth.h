// Whether a draft that has not begun is worth its reading of the text.
#pragma once

#include <cstdint>

#include "pair_prior.h"
#include "stance_rates.h"

namespace duo {

class draft_worth {
  public:
    // The rates must outlive it.
    explicit draft_worth(const stance_rates & rates) : rates_(rates) {}

    void expect(const pair_prior & prior) {
        shared_  = prior.shared;
        windows_ = prior.windows;
    }

    // The draft begins only when that pays, because its reading of the text slows the target down.
    [[nodiscard]] bool begins_late() const { return shared_; }
    [[nodiscard]] bool may_skip() const { return shared_ && windows_; } // see pair_prior::windows

    // True if the draft saves more time over the next n_tokens than its reading of the text takes, or if that reading
    // is short compared with the time of the text so far, so that a trial costs little.
    [[nodiscard]] bool pays(int64_t reading_us, int32_t n_tokens, int64_t elapsed_us) const {
        constexpr double trial_share = 0.02;
        if (rates_.plain() == 0.0 || rates_.now().turns.rate == 0.0) {
            return true; // nothing is known yet
        }
        return rates_.saved_us(n_tokens) > double(reading_us) || double(reading_us) < trial_share * double(elapsed_us);
    }
    // Microseconds that a draft saves over the next n_tokens, by what is known.
    [[nodiscard]] double saves(int32_t n_tokens) const { return rates_.saved_us(n_tokens); }

  private:
    const stance_rates & rates_;
    bool                 shared_  = false; // both models are on the same cores
    bool                 windows_ = false;
};

} // namespace duo
