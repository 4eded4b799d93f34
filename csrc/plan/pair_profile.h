// What was measured about a pair of models on its devices: times by width, and how often guesses are right. It is kept
// for the life of the engine and saved when the engine closes, so that a later run need not measure again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "draft_profile.h"
#include "guess_record.h"
#include "pass_times.h"
#include "text/request.h"

namespace duo {

constexpr int32_t profile_version = 10; // of the numbers of saved()

// Owned by the verify worker.
class pair_profile {
  public:
    // See pass_times.
    void expect(const pair_prior & prior);
    // Forgets all measurements, but not what is expected.
    void forget();

    void on_pass(int32_t n_rows, int64_t us, double shared);
    // A draft step. `shared`: part of its time in which the target worked too.
    void on_step(int32_t n_rows, float us, double shared);
    // Another draft is at work from now on. other: what is known of it; it takes what was known of the one before.
    void exchange_draft(draft_profile & other);

    [[nodiscard]] const pass_times &    passes() const { return passes_; }
    [[nodiscard]] const draft_profile & draft() const { return draft_; }
    // The record of guesses in texts of one kind.
    [[nodiscard]] guess_record & guesses(guess_kind kind) {
        ++n_changes_;
        return draft_.guesses[size_t(kind)];
    }
    [[nodiscard]] const guess_record & guesses(guess_kind kind) const { return draft_.guesses[size_t(kind)]; }
    [[nodiscard]] text_gains &         gains(guess_kind kind) { return draft_.gains[size_t(kind)]; }
    [[nodiscard]] const text_gains &   gains(guess_kind kind) const { return draft_.gains[size_t(kind)]; }

    // Expected microseconds; 0: nothing measured yet. beside: while the other model works. hopeful: see pass_times.
    [[nodiscard]] double pass_us(int32_t n_rows, bool beside, bool hopeful = true) const {
        return passes_.us(n_rows, beside, hopeful);
    }
    [[nodiscard]] double step_us(int32_t n_rows, bool beside) const;
    // What one node more adds to a draft step, as a share of a step over one.
    [[nodiscard]] double branch_price() const;
    [[nodiscard]] bool   measured_step(int32_t n_rows, bool beside) const {
        return (beside ? draft_.beside : draft_.alone)[size_t(n_rows)].n > 0;
    }
    // Grows with each change that may change an answer.
    [[nodiscard]] int64_t n_changes() const { return n_changes_; }

    // All measurements as numbers, for a file. restore() takes what saved() gave. False: it is not such a list, and
    // nothing has changed.
    [[nodiscard]] std::vector<double> saved() const;
    bool                              restore(std::span<const double> numbers);

  private:
    [[nodiscard]] double nearest_step(const step_table & t, int32_t n_rows) const;

    template <typename Self, typename F> static void each_average(Self & self, const F & f);

    pass_times    passes_;
    draft_profile draft_;
    int64_t       n_changes_ = 0;
};

} // namespace duo
