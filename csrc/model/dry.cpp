#include "dry.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace duo {

namespace {

constexpr float log_of_largest = 88.7228391f; // log of the largest float

// The end of a text, last token first.
class backwards {
  public:
    explicit backwards(std::span<const token_id> text) : text_(text) {}

    [[nodiscard]] int32_t  size() const { return int32_t(text_.size()); }
    [[nodiscard]] token_id operator[](int32_t i) const { return text_[text_.size() - 1 - size_t(i)]; }

  private:
    std::span<const token_id> text_;
};

// The number of tokens after the last breaker: a repetition cannot be longer.
int32_t longest_repetition(const backwards & last, const dry_breakers & breakers) {
    for (int32_t i = 0; i < last.size() && !breakers.empty(); ++i) {
        const auto tails = breakers.find(last[i]);
        if (tails == breakers.end()) {
            continue;
        }
        int32_t longest = -1;
        for (const auto & tail : tails->second) {
            const auto n     = int32_t(tail.size());
            int32_t    n_met = 0;
            while (n <= i && n_met < n && tail[size_t(n_met)] == last[i - n_met - 1]) {
                ++n_met;
            }
            longest = n <= i && n_met == n ? std::max(longest, n) : longest;
        }
        if (longest >= 0) {
            return i - longest;
        }
    }
    return last.size();
}

// same[k]: how many tokens from last[k] on are those from last[0] on. The Z-algorithm: [left, right) is the match that
// reaches furthest, and what lies inside it is known already.
void find_repetitions(const backwards & last, std::vector<int32_t> & same) {
    const int32_t n = last.size();
    same.assign(size_t(n), 0);
    int32_t left  = 0;
    int32_t right = 0;
    for (int32_t k = 1; k < n; ++k) {
        int32_t length = k < right ? std::min(same[size_t(k - left)], right - k) : 0;
        if (k + length >= right) {
            while (k + length < n && last[length] == last[k + length]) {
                ++length;
            }
            left  = k;
            right = k + length;
        }
        same[size_t(k)] = length;
    }
}

bool breaks_alone(const dry_breakers & breakers, token_id token) {
    const auto tails = breakers.find(token);
    return tails != breakers.end() &&
           std::any_of(tails->second.begin(), tails->second.end(), [](const auto & tail) { return tail.empty(); });
}

} // namespace

std::span<const dry_search::found> dry_search::penalties(std::span<const token_id> text, const sampling_params & s,
                                                         const dry_breakers & breakers) {
    found_.clear();
    const size_t n_searched = s.dry_penalty_last_n < 0 ? text.size() : size_t(s.dry_penalty_last_n);
    const auto   last       = backwards(text.last(std::min(text.size(), n_searched)));
    if (last.size() <= s.dry_allowed_length) {
        return found_;
    }
    const int32_t longest = longest_repetition(last, breakers);
    if (longest < s.dry_allowed_length) {
        return found_;
    }
    find_repetitions(last, same_);
    for (int32_t k = 1; k < last.size(); ++k) {
        const int32_t length = std::min(same_[size_t(k)], longest);
        if (length >= s.dry_allowed_length) {
            found_.push_back({.token = last[k - 1], .length = length});
        }
    }
    // Only the longest repetition that a token would continue counts.
    std::sort(found_.begin(), found_.end(), [](const found & a, const found & b) {
        return a.token < b.token || (a.token == b.token && a.length > b.length);
    });
    const auto same_token = [](const found & a, const found & b) { return a.token == b.token; };
    found_.erase(std::unique(found_.begin(), found_.end(), same_token), found_.end());
    std::erase_if(found_, [&breakers](const found & f) { return breaks_alone(breakers, f.token); });

    const auto most = s.dry_base > 1.000001f ? int32_t(log_of_largest / std::log(s.dry_base)) : 0;
    for (found & f : found_) {
        const int32_t excess   = f.length - s.dry_allowed_length;
        const int32_t exponent = most > 0 ? std::min(excess, most) : excess;
        const double  penalty  = double(s.dry_multiplier) * std::pow(double(s.dry_base), exponent);
        f.penalty              = float(std::min(penalty, double(std::numeric_limits<float>::max())));
    }
    return found_;
}

} // namespace duo
