// What a grammar leaves of the candidates.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/thread_clock.h"
#include "sampler.h"

namespace duo {

namespace {

constexpr float logit_refused = -std::numeric_limits<float>::infinity();

constexpr size_t n_asked        = 8;    // number of candidates that the grammar checks first
constexpr size_t n_wider        = 8;    // factor for each next round
constexpr size_t n_widest_draft = 4096; // most tokens that a draft searches for an allowed one
// A draft stops following a grammar that computes longer than this on average, after so many rows. (A thousand
// alternatives make a state large.) The target then rejects its wrong guesses. CPU time counts, so that a busy machine
// does not cost a draft its grammar.
constexpr int64_t most_us_draft = 2000;
constexpr int64_t n_held_least  = 3;

} // namespace

// Whether the filters have left one of them. A draft's other candidates only count beside such a one.
bool sampler::any_kept(const std::vector<llama_token_data> & some) const {
    return std::any_of(some.begin(), some.end(), [this](const llama_token_data & d) {
        return std::none_of(dropped_.begin(), dropped_.end(), [&d](const auto & x) { return x.id == d.id; });
    });
}

bool sampler::grammar_too_slow() {
    if (with_logp_ && n_held_ >= n_held_least && held_us_ > n_held_ * most_us_draft) {
        grammar_.reset();
    }
    return !grammar_;
}

void sampler::stand_behind(const sampling_params & sampling, std::span<const token_id> text) {
    const int64_t t0 = thread_us();
    grammar_->stand_behind(text.subspan(std::min(text.size(), size_t(std::max(0, sampling.n_prompt)))));
    held_us_ += thread_us() - t0;
    ++n_held_;
}

// Fills data_ with allowed tokens, from more of the row than its k best. None: the grammar is complete.
void sampler::look_for_allowed(size_t k) {
    const size_t n_widest = with_logp_ ? std::min(n_widest_draft, size_t(n_vocab_)) : size_t(n_vocab_);
    do {
        k = std::min(k * n_wider, n_widest);
        look({.n_most = k});
        grammar_->keep_allowed(data_);
    } while (data_.empty() && k < n_widest);
    if (data_.empty() && !with_logp_ && !grammar_->complete()) {
        throw error(error_kind::bad_value,
                    "the grammar is not complete, but no permitted token fits it; change the grammar or the biases");
    }
}

// The race continues until it reaches a candidate that the grammar allows. If the grammar refuses all candidates that
// the filters left, k is raised, and the filters then see allowed tokens only.
int32_t sampler::held(const sampling_params & sampling, std::span<const token_id> text, size_t k,
                      std::span<candidate> out) {
    stand_behind(sampling, text);
    for (size_t n = n_asked; !data_.empty(); n *= n_wider) {
        n = std::min(n, data_.size());
        sort(n);
        first_.assign(data_.begin(), data_.begin() + ptrdiff_t(n));
        grammar_->keep_allowed(first_);
        if (any_kept(first_)) {
            data_.erase(data_.begin(), data_.begin() + ptrdiff_t(n));
            data_.insert(data_.begin(), first_.begin(), first_.end());
            return rank(sampling, out.first(std::min(out.size(), first_.size())));
        }
        if (n == data_.size()) {
            break;
        }
    }
    look_for_allowed(k);
    score(sampling, text, data_.size());
    sort(out.size());
    return rank(sampling, out);
}

void sampler::keep_allowed(float * logits, const sampling_params & sampling, std::span<const token_id> text) {
    prepare(sampling);
    if (!grammar_) {
        return;
    }
    stand_behind(sampling, text);
    data_.clear();
    for (token_id t = 0; t < n_vocab_; ++t) {
        if (logits[t] != logit_refused) { // NaN stays, so that it is seen
            data_.push_back({.id = t, .logit = logits[t], .p = 0.0f});
        }
    }
    grammar_->keep_allowed(data_);
    std::fill_n(logits, n_vocab_, logit_refused);
    for (const llama_token_data & d : data_) {
        logits[d.id] = d.logit;
    }
}

} // namespace duo
