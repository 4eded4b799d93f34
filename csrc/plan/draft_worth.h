// Whether a draft that has not begun is worth its reading of the text.
#pragma once

#include <algorithm>
#include <cstdint>

#include "stance_choice.h"

namespace duo {

class draft_worth {
  public:
    // Both must outlive it.
    draft_worth(const pair_profile & profile, const stance_rates & rates) : profile_(profile), rates_(rates) {}

    // The draft begins only when that pays, because its reading of the text slows the target down.
    [[nodiscard]] bool begins_late() const { return prior().shared; }
    [[nodiscard]] bool may_skip() const { return prior().shared && prior().windows; } // see pair_prior::windows

    // True if the draft saves more time over the next n_tokens than its reading of the text takes, or if that reading
    // is short compared with the time since a draft last worked, so that a trial costs little.
    [[nodiscard]] bool pays(int64_t reading_us, int32_t n_tokens, int64_t elapsed_us) const {
        if (rates_.plain() == 0.0 || rates_.now().turns.rate == 0.0) {
            return true; // nothing is known yet
        }
        const double without = n_tokens >= n_trial ? gains().us_without() : 0.0;
        return saves(n_tokens) > double(reading_us) ||
               double(reading_us) < stance_choice::trial_share * std::max(double(elapsed_us), without);
    }
    // Microseconds that a draft saves over the next n_tokens, by what is known.
    [[nodiscard]] double saves(int32_t n_tokens) const {
        return gains().known() ? gains().saved_passes(n_tokens) * rates_.plain_us() : rates_.saved_us(n_tokens);
    }

  private:
    static constexpr int32_t n_trial = 12; // tokens that are left: fewer show nothing

    [[nodiscard]] const pair_prior & prior() const { return profile_.passes().prior(); }
    [[nodiscard]] const text_gains & gains() const { return profile_.gains(rates_.terms().kind); }

    const pair_profile & profile_;
    const stance_rates & rates_;
};

} // namespace duo
