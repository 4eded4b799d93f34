#include "text_gains.h"

#include <algorithm>

#include "row_values.h"

namespace duo {

namespace {
constexpr double  assumed          = 0.1; // share that a draft saves, before anything was seen
constexpr double  assumed_weight   = 3.0; // texts that this counts as
constexpr int32_t n_tokens_telling = 8;   // tokens of a text that say something about it
constexpr int32_t n_hard           = 12;  // tokens after which a draft that costs time is sent to rest
constexpr int32_t n_usual          = 64;  // of a text whose length is unknown
} // namespace

void text_gains::begin_text() {
    if (n_tokens_ >= n_tokens_telling) {
        shares_[n_known_ % n_texts] = std::max(-1.0, 1.0 - us_ / plain_us_);
        ++n_known_;
    }
    has_read_ = false;
    n_tokens_ = 0;
    us_ = plain_us_ = 0.0;
}

void text_gains::on_pass(int32_t n_tokens, double us, double plain_us) {
    us_without_ = 0.0;
    if (has_read_ && plain_us > 0.0) {
        n_tokens_ += n_tokens;
        us_ += us;
        plain_us_ += n_tokens * plain_us;
    }
    has_read_ = true;
}

bool text_gains::promise() const {
    return known() && saved_passes(n_usual) > row_values::least_gain * n_usual;
}

double text_gains::saved_passes(int32_t n_tokens) const {
    const size_t n   = std::min(n_known_, n_texts);
    double       sum = assumed_weight * assumed * std::min(n_tokens, n_usual);
    for (size_t i = 0; i < n; ++i) {
        sum += shares_[i] * (shares_[i] > 0.0 ? n_tokens : std::min(n_tokens, n_hard));
    }
    return sum / (double(n) + assumed_weight);
}

std::array<double, text_gains::n_saved> text_gains::saved() const {
    std::array<double, n_saved> out{};
    out[0] = double(std::min(n_known_, n_texts));
    std::transform(shares_.begin(), shares_.begin() + ptrdiff_t(out[0]), out.begin() + 1,
                   [](double share) { return 1.0 + share; });
    return out;
}

text_gains text_gains::restored(std::span<const double, n_saved> numbers) {
    text_gains g;
    const auto shares = numbers.subspan<1>();
    if (numbers[0] >= 0.0 && numbers[0] <= double(n_texts) &&
        std::all_of(shares.begin(), shares.end(), [](double x) { return x >= 0.0 && x <= 2.0; })) {
        g.n_known_ = size_t(numbers[0]);
        std::transform(shares.begin(), shares.begin() + ptrdiff_t(g.n_known_), g.shares_.begin(),
                       [](double x) { return x - 1.0; });
    }
    return g;
}

} // namespace duo
