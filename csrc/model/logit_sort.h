// Sorts logits, best first. Rows that no filter shortens are long, so these are sorted by the digits of their numbers.
#pragma once

#include <array>
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

// One thread.
class logit_sort {
  public:
    // Keeps the k best, sorted by `better`. Before, they are in the order of their ids; none is NaN.
    void keep_best(std::vector<top_logit> & all, size_t k);

    // How many were sorted so far.
    [[nodiscard]] int64_t n_sorted() const { return n_sorted_; }

  private:
    void sort_by_digits(std::vector<top_logit> & all);

    std::vector<top_logit> other_; // scratch
    int64_t                n_sorted_ = 0;
};

} // namespace duo
