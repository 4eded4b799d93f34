// How long the target's passes take, by width: as measured, alone and while the draft works, and as expected.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "draft_profile.h"
#include "pair_prior.h"
#include "text/request.h"

namespace duo {

constexpr int32_t n_rows_cap = n_draft_cap + 8; // widths of passes that are measured separately, in rows

// Owned by the verify worker.
class pass_times {
  public:
    // Sets what is expected before anything was measured, and how the times of unmeasured widths relate to each other.
    void                             expect(const pair_prior & prior);
    [[nodiscard]] bool               has_prior() const { return !prior_.pass_us.empty(); }
    [[nodiscard]] const pair_prior & prior() const { return prior_; }

    // A pass over n_rows, without prompt rows. `shared`: part of its time in which the draft worked too, 0..1.
    void                  on_pass(int32_t n_rows, int64_t us, double shared);
    [[nodiscard]] int64_t n_passes() const { return n_passes_; }

    // Expected microseconds of a pass; 0: nothing measured yet. beside: while the draft works. hopeful: a small width
    // that was not measured this way is assumed to be cheap, so that it gets tried.
    [[nodiscard]] double us(int32_t n_rows, bool beside, bool hopeful = true) const;
    // Time of a pass while the draft works, relative to a pass alone. 1: they do not slow each other down.
    [[nodiscard]] double slowdown() const { return slowdown_; }

    [[nodiscard]] const average & alone(int32_t n_rows) const { return alone_[size_t(n_rows)]; }
    // As measured, alone if there was such a pass. Unlike us(), it may fall with the width.
    [[nodiscard]] double measured_us(int32_t n_rows) const {
        return (alone(n_rows).n > 0 ? alone(n_rows) : together_[size_t(n_rows)]).value;
    }
    [[nodiscard]] bool measured_beside(int32_t n_rows) const { return together_[size_t(n_rows)].n > 0; }
    [[nodiscard]] bool measured(int32_t n_rows) const { return alone(n_rows).n > 0 || measured_beside(n_rows); }
    // The most drafted tokens that a measured pass had, or whose cost is expected.
    [[nodiscard]] int32_t n_tried() const;
    // Wider passes may be expensive, so the width grows in small steps.
    [[nodiscard]] int32_t widest_try(int32_t n_min) const { return std::max({1, 2 * n_tried(), n_min}); }

    // Calls f(average &) for all measurements: those alone, then those beside a draft. restored() must follow a change.
    template <typename Self, typename F> static void each(Self & self, const F & f) {
        std::for_each(self.alone_.begin(), self.alone_.end(), f);
        std::for_each(self.together_.begin(), self.together_.end(), f);
    }
    void restored() { changed(); }

  private:
    using table   = std::array<average, n_rows_cap + 1>; // by rows
    using by_rows = std::array<double, n_rows_cap + 1>;  // microseconds
    struct neighbours {                                  // of a width, among the measured ones; 0: none
        int32_t first = 0;                               // the smallest of all
        int32_t under = 0;                               // below `below`
        int32_t below = 0;                               // or this width itself
        int32_t above = 0;
        double  most  = 0.0; // least time of the wider ones, which this one does not exceed
    };

    void                  changed();
    [[nodiscard]] double  find_slowdown() const;
    [[nodiscard]] bool    counts(const average & a) const;
    [[nodiscard]] by_rows interpolate(const table & t) const;
    [[nodiscard]] double  between(const table & t, int32_t n_rows, const neighbours & near) const;

    pair_prior prior_;
    table      alone_{};
    table      together_{}; // while both work
    int64_t    n_passes_ = 0;
    double     slowdown_ = 1.0;
    by_rows    of_widths_alone_{};
    by_rows    of_widths_{}; // while both work
};

} // namespace duo
