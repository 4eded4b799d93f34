// Finds the best of a row of logits, and the sum of their exponentials, in little more time than reading the row takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/messages.h"

namespace duo {

struct top_logit {
    token_id token = no_token;
    float    logit = 0.0f;
};

// Higher logit first; equal logits by id, so that the order is a function of the logits alone. An object, because
// algorithms call a function by its address.
inline constexpr auto better = [](const top_logit & a, const top_logit & b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
};

// One thread. NaN is never among the best and adds nothing to the sum.
class logit_row {
  public:
    // Reads x[0..n) once and keeps the largest value of each block. x must not change while the other functions are
    // called.
    void read(const float * x, int32_t n);

    // The best, by `better`; no_token: all NaN.
    [[nodiscard]] token_id argmax() const;

    // The k best (all, if there are no more), best first.
    void top_k(size_t k, std::vector<top_logit> & out) const;

    // The standard deviation of the logits that are not -inf or NaN. Infinite if a logit is +inf or none are left.
    [[nodiscard]] double deviation() const;

    // log(sum(exp(x))) within 1e-5; an infinite maximum is the sum.
    [[nodiscard]] double log_sum_exp() const;

  private:
    [[nodiscard]] float floor_of(size_t k) const;

    const float *      x_   = nullptr;
    int32_t            n_   = 0;
    float              max_ = 0.0f;
    std::vector<float> maxima_; // of the blocks
};

} // namespace duo
