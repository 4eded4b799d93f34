#include "thought_limit.h"

#include <algorithm>
#include <limits>

#include "base/utf8.h"

namespace duo {

thought_limit::thought_limit(std::vector<thought_marks> marks, int32_t n_most,
                             std::function<std::string(token_id)> spell)
    : marks_(std::move(marks)), n_most_(n_most), spell_(std::move(spell)) {
    for (const thought_marks & m : marks_) {
        n_mark_ = std::max({n_mark_, m.begin.size(), m.end.size()});
    }
}

bool thought_limit::on_row(std::span<const token_id> text, std::span<float> logits) {
    const bool is_prompt = n_seen_ == 0;
    while (n_seen_ < text.size()) {
        take(text[n_seen_++]);
    }
    if (is_prompt) {
        n_used_ = 0; // only what is generated counts
    }
    if (inside_ != nullptr && !inside_->forced.empty() && !given_up_ && n_used_ >= n_most_) {
        forcing_ = forcing_ || utf8_incomplete(tail_) == 0; // a character is completed first
    }
    if (forcing_) {
        const auto  forced = size_t(inside_->forced[n_forced_]);
        const float kept   = logits[forced];
        std::fill(logits.begin(), logits.end(), -std::numeric_limits<float>::infinity());
        logits[forced] = std::max(kept, std::numeric_limits<float>::lowest());
    }
    return true;
}

bool thought_limit::refused() {
    if (forcing_) {
        const size_t n_said = inside_->forced.size() - n_of_end(*inside_);
        given_up_           = n_forced_ > n_said;
        forcing_            = false;
        n_forced_           = std::min(n_forced_, n_said); // what is said before the mark is said once
    }
    return false;
}

// Tokens of `forced` that are the mark.
size_t thought_limit::n_of_end(const thought_marks & m) const {
    std::string text;
    size_t      n = 0;
    while (n < m.forced.size() && text.size() < m.end.size()) {
        text.insert(0, spell_(m.forced[m.forced.size() - ++n]));
    }
    return n;
}

void thought_limit::take(token_id token) {
    tail_ += spell_(token);
    if (inside_ == nullptr) {
        const auto begun =
            std::find_if(marks_.begin(), marks_.end(), [&](const auto & m) { return take_mark(m.begin); });
        if (begun != marks_.end()) {
            inside_   = &*begun;
            n_used_   = 0;
            n_forced_ = 0;
            given_up_ = false;
        }
    } else {
        ++n_used_;
        n_forced_ += size_t(forcing_);
        if (forcing_ ? n_forced_ == inside_->forced.size() : take_mark(inside_->end)) {
            inside_  = nullptr;
            forcing_ = false;
        }
    }
    const size_t n_kept = std::max<size_t>(n_mark_, 4);
    tail_.erase(0, tail_.size() - std::min(tail_.size(), n_kept));
}

// Whether the mark is there; what comes up to its end is then forgotten.
bool thought_limit::take_mark(const std::string & mark) {
    const size_t at = mark.empty() ? std::string::npos : tail_.find(mark);
    if (at == std::string::npos) {
        return false;
    }
    tail_.erase(0, at + mark.size());
    return true;
}

} // namespace duo
