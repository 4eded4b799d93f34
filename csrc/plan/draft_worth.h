// Whether it pays to start a draft that must first read the text.
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

    // False: nothing is known yet, so the draft is tried.
    [[nodiscard]] bool known() const { return rates_.plain() > 0.0; }
    // The reading takes so small a share of the time since a draft last worked that a trial costs little.
    [[nodiscard]] bool may_try(int64_t reading_us, int32_t n_tokens, int64_t elapsed_us) const {
        const double without = n_tokens >= n_trial ? gains().us_without() : 0.0;
        return double(reading_us) < stance_choice::trial_share * std::max(double(elapsed_us), without);
    }
    // True if the draft saves more time over the next n_tokens than its reading takes, or may be tried. share: what a
    // draft that reads so little saves, of what one saves that reads all.
    [[nodiscard]] bool pays(int64_t reading_us, int32_t n_tokens, int64_t elapsed_us, double share = 1.0) const {
        return !known() || share * saves(n_tokens) > double(reading_us) || may_try(reading_us, n_tokens, elapsed_us);
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
