// Finds the best of a row of logits, and the sum of their exponentials, in little more time than reading the row takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kept_bound.h"
#include "logit_sort.h"

namespace duo {

// One thread. NaN is never among the best and adds nothing to the sum.
class logit_row {
  public:
    // Reads x[0..n) once and keeps the largest value of each block. x must not change while the other functions are
    // called.
    void read(const float * x, int32_t n);

    // The best, by `better`; no_token: all NaN.
    [[nodiscard]] token_id argmax() const;

    // The largest logit; -inf: there is none.
    [[nodiscard]] float max() const { return max_; }

    // What is within the bound and perhaps some more, best first or in the order of the ids, as the bound says.
    void within(const kept_bound & bound, std::vector<top_logit> & out);

    // The k best (all, if there are no more), best first.
    void top_k(size_t k, std::vector<top_logit> & out) { within({.n_most = k}, out); }

    // How many logits were sorted so far.
    [[nodiscard]] int64_t n_sorted() const { return sort_.n_sorted(); }

    // The standard deviation of the logits that are not -inf or NaN. Infinite if a logit is +inf or none are left.
    [[nodiscard]] double deviation() const;

    // log(sum(exp(x))) within 1e-5; an infinite maximum is the sum.
    [[nodiscard]] double log_sum_exp() const;

  private:
    [[nodiscard]] float floor_of(size_t k) const;
    void                collect(float floor, std::vector<top_logit> & out) const;

    const float *      x_   = nullptr;
    int32_t            n_   = 0;
    float              max_ = 0.0f;
    std::vector<float> maxima_; // of the blocks
    logit_sort         sort_;
};

} // namespace duo
