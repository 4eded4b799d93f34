// How many drafted tokens to verify, and whether to wait for them. Measured, not configured.
//
// Rate of a verification of m drafted tokens: E(m) / (wait(m) + t(m + 1)), with E(m) = 1 + sum over i <= m of the
// product of the acceptances up to i (Leviathan et al., arXiv 2211.17192), t(n) the time of a target pass over n rows
// and wait(m) the time until the draft has m nodes. All of them are running averages of this run.
#pragma once

#include <array>
#include <cstdint>

#include "request.h"

namespace duo {

struct plan {
    int32_t n_verify = 0; // drafted tokens wanted in this pass
    int64_t wait_us  = 0; // longest wait for them; 0: take what is there
};

// Owned by the verify worker. Times outlive a request (they belong to the pair of models), acceptance too, fading.
class planner {
  public:
    void begin(const plan_params & params);

    // n_ready: length of the drafted chain now. n_room: rows that context and batch have left for drafted tokens.
    // growing: the draft may still add nodes to it.
    [[nodiscard]] plan next(int32_t n_ready, int32_t n_room, bool growing);

    // How many levels below the root are of use to the draft now.
    [[nodiscard]] int16_t look_ahead() const;

    void on_pass(int32_t n_rows, int64_t us);               // a target pass over n_rows, no prompt among them
    void on_step(float us);                                 // a draft step
    void on_accept(int32_t i, bool accepted);               // node at position i of the chain, all before it right
    void on_late_guess(bool right) { on_accept(0, right); } // known without having been verified

    [[nodiscard]] double acceptance(int32_t i) const;   // a_i, 0..1
    [[nodiscard]] double pass_us(int32_t n_rows) const; // expected; 0: nothing measured yet
    [[nodiscard]] double step_us() const { return step_us_; }

  private:
    // Running average that trusts the smallest of its first samples (first passes of a shape pay for its set-up),
    // and the smaller of an old value and a new one.
    struct average {
        double  value  = 0.0;
        int32_t n      = 0;
        int64_t i_last = 0; // pass that was measured last
        void    add(double x, int64_t i_pass);
    };

    struct odds {
        double yes = 0.0;
        double no  = 0.0;
    };

    [[nodiscard]] int32_t best_width(int32_t n_ready, int32_t m_max, bool growing) const;
    [[nodiscard]] double  rate(int32_t m, int32_t n_ready) const;
    [[nodiscard]] double  n_tried() const;
    // Turn-taking with a fixed length is the one thing that is not weighed.
    [[nodiscard]] bool adaptive() const { return params_.n_max == n_draft_auto || params_.mode != run_mode::sync; }

    plan_params                          params_;
    int32_t                              n_max_ = 0;
    std::array<average, n_draft_cap + 2> pass_{}; // by rows
    std::array<odds, n_draft_cap>        odds_{}; // by position
    int64_t                              n_passes_ = 0;
    double                               step_us_  = 0.0;
    int32_t                              n_last_   = 0; // drafted tokens wanted last
    int32_t                              n_off_    = 0; // passes since speculation paid
    int32_t                              n_retry_  = 0; // passes until it is tried again
};

} // namespace duo
