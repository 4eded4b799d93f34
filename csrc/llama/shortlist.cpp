#include "shortlist.h"

#include <algorithm>

namespace duo {

namespace {

// Tokens outside the list among the rows of a draft: with more than the first share, the list costs more guesses than
// it saves time. A running average over so many rows.
constexpr float share_most  = 0.03f;
constexpr float share_least = 0.01f;
constexpr float n_rows_mean = 128.0f;

bool is_special(const llama_vocab * vocab, token_id t) {
    constexpr int special =
        LLAMA_TOKEN_ATTR_UNKNOWN | LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_USER_DEFINED | LLAMA_TOKEN_ATTR_BYTE;
    return (llama_vocab_get_attr(vocab, t) & special) != 0 || llama_vocab_is_eog(vocab, t);
}

} // namespace

shortlist::shortlist(const llama_vocab * vocab, int32_t n_first, const std::string & weight) {
    const int32_t n_vocab = llama_vocab_n_tokens(vocab);
    has_.resize(size_t((n_vocab + cpu::n_lanes - 1) / cpu::n_lanes));
    for (token_id t = 0; t < n_vocab; ++t) {
        if (t < n_first || is_special(vocab, t)) {
            has_[size_t(t / cpu::n_lanes)] = 1;
        }
    }
    n_brought_most_ = size_t(std::count(has_.begin(), has_.end(), 1)) / 2;
    rows_.weight    = weight;
    rows_.n_rows    = n_vocab;
    find_runs();
}

void shortlist::read(token_id token) {
    const int32_t unit    = token / cpu::n_lanes;
    const bool    outside = has_[size_t(unit)] == 0;
    n_outside_ += ((outside ? 1.0f : 0.0f) - n_outside_) / n_rows_mean;
    resting_ = n_outside_ > (resting_ ? share_least : share_most);
    if (!outside || n_brought_most_ == 0) {
        return;
    }
    if (brought_.size() == n_brought_most_) {
        has_[size_t(brought_.front())] = 0;
        brought_.pop_front();
    }
    brought_.push_back(unit);
    has_[size_t(unit)] = 2;
    find_runs();
}

int32_t shortlist::n_tokens() const {
    const auto n = int32_t(has_.size()) - int32_t(std::count(has_.begin(), has_.end(), 0));
    return std::min(n * cpu::n_lanes, int32_t(rows_.n_rows));
}

void shortlist::find_runs() {
    rows_.runs.clear();
    for (size_t i = 0; i < has_.size(); ++i) {
        const int  panel   = int(i) % cpu::n_panels;
        const bool goes_on = panel > 0 && i > 0 && has_[i - 1] != 0; // a run ends with its block
        if (has_[i] == 0) {
            continue;
        }
        if (goes_on) {
            ++rows_.runs.back().to;
        } else {
            rows_.runs.push_back({int64_t(i) / cpu::n_panels, panel, panel + 1});
        }
    }
}

} // namespace duo
