#include "logit_sort.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace duo {

namespace {

constexpr size_t   n_many  = 2048; // from here on the digits are faster than comparisons
constexpr uint32_t n_bits  = 11;   // of a digit: three of them have all 32
constexpr uint32_t n_steps = 1 << n_bits;

// The lowest is the best. Zeros of both signs are equal.
uint32_t key_of(const top_logit & x) {
    const auto bits = std::bit_cast<uint32_t>(x.logit + 0.0f);
    return (bits >> 31) != 0 ? bits : ~bits & 0x7fffffff;
}

uint32_t digit_of(const top_logit & x, uint32_t i) {
    return (key_of(x) >> (i * n_bits)) % n_steps;
}

} // namespace

void logit_sort::keep_best(std::vector<top_logit> & all, size_t k) {
    if (all.size() >= n_many) {
        n_sorted_ += int64_t(all.size());
        sort_by_digits(all);
        all.resize(std::min(all.size(), k));
        return;
    }
    if (all.size() > k) {
        std::nth_element(all.begin(), all.begin() + std::ptrdiff_t(k), all.end(), better);
        all.resize(k);
    }
    n_sorted_ += int64_t(all.size());
    std::sort(all.begin(), all.end(), better);
}

// From the lowest digit to the highest, each time without changing the order of equal ones.
void logit_sort::sort_by_digits(std::vector<top_logit> & all) {
    other_.resize(all.size());
    std::array<std::array<uint32_t, n_steps>, 3> first{}; // of each digit's values: how many; then where they begin
    for (const top_logit & x : all) {
        for (uint32_t i = 0; i < 3; ++i) {
            ++first[i][digit_of(x, i)];
        }
    }
    for (uint32_t i = 0; i < 3; ++i) {
        uint32_t n = 0;
        for (uint32_t & at : first[i]) {
            n += std::exchange(at, n);
        }
        for (const top_logit & x : all) {
            other_[first[i][digit_of(x, i)]++] = x;
        }
        all.swap(other_);
    }
}

} // namespace duo
