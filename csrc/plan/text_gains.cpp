#include "text_gains.h"

#include <algorithm>

namespace duo {

namespace {
constexpr double  assumed   = 0.1;  // share that a draft saves, before anything was seen; counts as one text
constexpr int32_t n_telling = 6;    // passes of a text that say something about it
constexpr int32_t n_trial   = 12;   // tokens after which a draft that costs time is sent to rest
constexpr int32_t n_usual   = 64;   // of a text whose length is unknown
constexpr double  least     = 0.04; // share that is worth a trial
} // namespace

void text_gains::begin_text() {
    if (n_passes_ >= n_telling && plain_us_ > 0.0) {
        shares_[n_known_ % shares_.size()] = std::max(-1.0, 1.0 - us_ / plain_us_);
        ++n_known_;
    }
    n_passes_ = 0;
    us_ = plain_us_ = 0.0;
}

void text_gains::on_pass(int32_t n_tokens, double us, double plain_us) {
    us_without_ = 0.0;
    if (plain_us > 0.0) {
        ++n_passes_;
        us_ += us;
        plain_us_ += n_tokens * plain_us;
    }
}

bool text_gains::promise() const {
    return known() && saved_tokens(n_usual) > least * n_usual;
}

double text_gains::saved_tokens(int32_t n_tokens) const {
    const size_t n   = std::min(n_known_, shares_.size());
    double       sum = assumed * n_tokens;
    for (size_t i = 0; i < n; ++i) {
        sum += shares_[i] * (shares_[i] > 0.0 ? n_tokens : std::min(n_tokens, n_trial));
    }
    return sum / double(n + 1);
}

} // namespace duo
