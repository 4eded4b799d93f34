#include "text_context.h"

#include <algorithm>

namespace duo {

namespace {
constexpr int32_t n_least = 4; // tokens behind those that always stay
}

void text_context::begin(std::span<const token_id> prompt, const context_shift & how, int32_t n_most) {
    tokens_.assign(prompt.begin(), prompt.end());
    how_        = how;
    how_.on     = how.on && n_most > n_least;
    n_most_     = n_most;
    n_first_    = std::clamp(how.n_keep, 0, std::max(0, n_most - n_least));
    n_left_out_ = 0;
}

// The last token is not in the cache yet.
int32_t text_context::n_next_shift() const {
    const int32_t n_left = int32_t(tokens_.size()) - 1 - n_first_;
    return std::clamp(how_.n_discard > 0 ? how_.n_discard : n_left / 2, 1, n_left - 1);
}

void text_context::shift() {
    const int32_t n     = n_next_shift();
    const auto    first = tokens_.begin() + n_first_;
    tokens_.erase(first, first + n);
    n_left_out_ += n;
}

} // namespace duo
