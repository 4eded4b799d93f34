#include "core_split.h"

#include <algorithm>

namespace duo {

namespace {
constexpr int32_t n_wait_first = 64; // passes with one split before others are tried; doubles if those were slower
constexpr int32_t n_wait_last  = 8192;
constexpr int32_t n_glance     = 2;    // passes of a trial after which the times alone may end it
constexpr int32_t n_trial      = 24;   // passes of a trial
constexpr double  hopeless     = 0.9;  // of what the best split can reach
constexpr double  clear        = 1.03; // less is within the noise of measurement
} // namespace

void split_search::begin(size_t n, size_t first) {
    *this = {};
    n_    = std::clamp<size_t>(n, 1, 64);
    best_ = now_ = std::min(first, n_ - 1);
    n_wait_      = n_wait_first;
}

bool split_search::on_pass(bool more_draft) {
    if (n_ < 2 || ++n_in_ < n_wait_) {
        return false;
    }
    const bool to_draft = turn_next_ ? !more_draft_ : more_draft;
    more_draft_         = best_ == 0 || (to_draft && best_ + 1 < n_);
    now_                = more_draft_ ? best_ + 1 : best_ - 1;
    n_in_               = 0;
    trial_              = {};
    return true;
}

bool split_search::on_trial_pass(int32_t n_tokens, double expected, double us, double best_rate, double promise,
                                 double best_promise) {
    trial_.add(n_tokens, expected, us);
    const bool lost = trial_.n >= n_glance && promise > 0.0 && promise < hopeless * best_promise;
    if (!lost && trial_.n < n_trial) {
        return true;
    }
    if (!lost && trial_.rate() > clear * best_rate) {
        best_      = now_;
        turn_next_ = false;
        n_wait_    = n_wait_first;
        return false;
    }
    // Both directions were slower: the next pair of trials comes later.
    n_wait_    = turn_next_ ? std::min(2 * n_wait_, n_wait_last) : n_wait_;
    turn_next_ = !turn_next_;
    now_       = best_;
    return false;
}

bool split_search::move_on(bool more_draft) {
    left_ |= uint64_t(1) << best_;
    for (const bool up : {more_draft, !more_draft}) {
        const size_t i = up ? best_ + 1 : best_ - 1; // wraps around below 0
        if (i < n_ && (left_ >> i & 1) == 0) {
            best_ = now_ = i;
            return true;
        }
    }
    left_ = 0;
    return false;
}

void split_search::restore(size_t best, int32_t n_wait) {
    if (best < n_) {
        best_ = now_ = best;
        n_wait_      = std::clamp(n_wait, n_wait_first, n_wait_last);
    }
}

} // namespace duo
