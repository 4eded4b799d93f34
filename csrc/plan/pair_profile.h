// What was measured about a pair of models on its devices: times by width, and how often guesses are right. It is kept
// for the life of the engine and saved when the engine closes, so that a later run need not measure again.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "draft_profile.h"
#include "guess_record.h"
#include "pair_prior.h"
#include "text/request.h"

namespace duo {

constexpr int32_t n_rows_cap      = n_draft_cap + 8; // widths of passes that are measured separately, in rows
constexpr int32_t profile_version = 6;               // of the numbers of saved()

// Owned by the verify worker.
class pair_profile {
  public:
    // Sets what is expected before anything was measured, and how the times of unmeasured widths relate to each other.
    void expect(pair_prior prior);
    // Forgets all measurements, but not what is expected.
    void               forget();
    [[nodiscard]] bool has_prior() const { return !prior_.pass_us.empty(); }

    // A target pass over n_rows, without prompt rows. `shared`: part of its time in which the draft worked too, 0..1.
    void on_pass(int32_t n_rows, int64_t us, double shared);
    // A draft step. `shared`: part of its time in which the target worked too.
    void on_step(int32_t n_rows, float us, double shared);

    // Another draft is at work from now on. other: what is known of it; it takes what was known of the one before.
    void                                exchange_draft(draft_profile & other);
    [[nodiscard]] const draft_profile & draft() const { return draft_; }
    [[nodiscard]] int64_t               n_passes() const { return n_passes_; }

    // Times of both models at work are kept separately for each split of the cores.
    void choose_split(size_t i) {
        split_ = i;
        changed();
    }

    // The record of guesses in texts of one kind.
    [[nodiscard]] guess_record & guesses(guess_kind kind) {
        ++n_changes_;
        return draft_.guesses[size_t(kind)];
    }
    [[nodiscard]] const guess_record & guesses(guess_kind kind) const { return draft_.guesses[size_t(kind)]; }

    // Expected microseconds of a pass; 0: nothing measured yet. beside: while the draft works. hopeful: a small width
    // that was not measured this way is assumed to be cheap, so that it gets tried.
    [[nodiscard]] double pass_us(int32_t n_rows, bool beside, bool hopeful = true) const;
    [[nodiscard]] double step_us(int32_t n_rows, bool beside) const;
    // What one node more adds to a draft step, as a share of a step over one.
    [[nodiscard]] double branch_price() const;
    // Time of a pass while the draft works, relative to a pass alone. 1: they do not slow each other down.
    [[nodiscard]] double slowdown() const { return slowdown_; }

    [[nodiscard]] const average & alone(int32_t n_rows) const { return alone_[size_t(n_rows)]; }
    // Grows with each change that may change an answer.
    [[nodiscard]] int64_t n_changes() const { return n_changes_; }
    // As measured, alone if there was such a pass. Unlike pass_us(), it may fall with the width.
    [[nodiscard]] double measured_us(int32_t n_rows) const {
        return (alone(n_rows).n > 0 ? alone(n_rows) : pass_together()[size_t(n_rows)]).value;
    }
    [[nodiscard]] bool measured_beside(int32_t n_rows) const { return pass_together()[size_t(n_rows)].n > 0; }
    [[nodiscard]] bool measured(int32_t n_rows) const { return alone(n_rows).n > 0 || measured_beside(n_rows); }
    [[nodiscard]] bool measured_step(int32_t n_rows, bool beside) const {
        return (beside ? step_together() : draft_.alone)[size_t(n_rows)].n > 0;
    }
    // The most drafted tokens that a measured pass had, or whose cost is expected.
    [[nodiscard]] int32_t n_tried() const;
    // Wider passes may be expensive, so the width grows in small steps.
    [[nodiscard]] int32_t widest_try(int32_t n_min) const { return std::max({1, 2 * n_tried(), n_min}); }

    // All measurements as numbers, for a file. restore() takes what saved() gave. False: it is not such a list, and
    // nothing has changed.
    [[nodiscard]] std::vector<double> saved() const;
    bool                              restore(std::span<const double> numbers);

  private:
    using table = std::array<average, n_rows_cap + 1>; // by rows
    [[nodiscard]] const table &      pass_together() const { return together_[split_]; }
    [[nodiscard]] const step_table & step_together() const { return draft_.beside[split_]; }

    using by_rows = std::array<double, n_rows_cap + 1>; // microseconds
    struct neighbours {                                 // of a width, among the measured ones; 0: none
        int32_t first = 0;                              // the smallest of all
        int32_t under = 0;                              // below `below`
        int32_t below = 0;                              // or this width itself
        int32_t above = 0;
        double  most  = 0.0; // least time of the wider ones, which this one does not exceed
    };

    void                 changed();
    [[nodiscard]] double find_slowdown() const;

    template <typename Self, typename F> static void each_average(Self & self, const F & f);

    [[nodiscard]] bool    counts(const average & a) const;
    [[nodiscard]] by_rows interpolate(const table & t) const;
    [[nodiscard]] double  between(const table & t, int32_t n_rows, const neighbours & near) const;
    [[nodiscard]] double  nearest_step(const step_table & t, int32_t n_rows) const;

    pair_prior         prior_;
    table              alone_{};
    std::vector<table> together_{1}; // while both work, by core_split
    draft_profile      draft_;
    size_t             split_     = 0;
    int64_t            n_passes_  = 0;
    int64_t            n_changes_ = 0;
    double             slowdown_  = 1.0;
    by_rows            of_widths_alone_{};
    by_rows            of_widths_{}; // while both work
};

} // namespace duo
