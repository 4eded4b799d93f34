// What the planner asks of the draft.
#include <algorithm>

#include "planner.h"

namespace duo {

namespace {
constexpr int32_t n_branch_auto = 8; // frontier nodes that the draft expands at once
} // namespace

int16_t planner::n_ahead() const {
    if (measuring_ || history_->stance_now == stance::rest || n_max_ == 0) {
        return 0;
    }
    if (!shape_.empty()) {
        return int16_t(params_.mode == run_mode::sync ? shape_.depth() : 2 * shape_.depth() + 2);
    }
    if (turns()) {
        int32_t n = adaptive() ? std::min({n_max_, 2 * ways().hopeful.k + 1, widest_try()}) : n_max_;
        // The draft does not know how much a head's guesses lose with each step.
        while (adaptive() && guesses().has_ages() && n > 1 && n > params_.n_min &&
               guesses().hope_of_age(n - 1) < price_of_guess()) {
            --n;
        }
        return int16_t(n);
    }
    // Twice what is verified, so that the tree goes on behind an accepted path.
    return int16_t(params_.n_ahead > 0 ? params_.n_ahead : std::min(2 * n_max_, n_draft_cap) + 2);
}

core_split planner::threads() const {
    return splits_.empty() || !draft_works() ? core_split{} : splits_[history_->splits.now()];
}

int16_t planner::n_branch() const {
    const bool free = n_levels_ > 1 && adaptive(); // a block's branches cost no step
    if ((turns() && params_.use != tree_use::dynamic && !free) || (free && params_.use == tree_use::chain)) {
        return 1;
    }
    return int16_t(params_.n_branch > 0 ? params_.n_branch : n_branch_auto);
}

int16_t planner::n_want() const {
    return int16_t(params_.mode == run_mode::sync && params_.use == tree_use::dynamic && shape_.empty() ? n_max_ : 0);
}

// With turn-taking the target waits for each step: the tokens that could be had while it makes one more guess and
// verifies it.
double planner::price_of_guess() const {
    const int32_t k   = std::max(1, ways().hopeful.k);
    const double  row = std::max(0.0, profile_.pass_us(k + 1, false) - profile_.pass_us(k, false));
    return rate() * (profile_.step_us(1, false) + row);
}

// The draft knows the chance of the node that it would expand, but not yet that of the guess below it.
int16_t planner::least_path() const {
    if (!turns() || !adaptive() || params_.n_min > 0 || n_levels_ > 1) {
        return 0;
    }
    const int32_t k    = std::max(1, ways().hopeful.k);
    const double  next = acceptance(k - 1, k - 1);
    return int16_t(std::clamp(1000.0 * price_of_guess() / next, 0.0, 900.0));
}

int16_t planner::branch_price() const {
    return int16_t(std::clamp(1000.0 * profile_.branch_price(), 1.0, 30000.0));
}

} // namespace duo
