#include "logit_changes.h"

#include <algorithm>
#include <limits>

#include "dry_breakers.h"

namespace duo {

namespace {

constexpr float logit_banned = -std::numeric_limits<float>::infinity();

// Number of tokens that the penalties see; the user's -1 means the whole text.
int32_t look_back(const sampling_params & sampling) {
    return sampling.repeat_last_n < 0 ? 1 << 20 : sampling.repeat_last_n;
}

} // namespace

void logit_changes::prepare(const sampling_params & sampling) {
    prepare_dry(sampling);
    bias_.clear();
    for (const auto & [token, bias] : sampling.logit_bias) {
        if (token >= 0 && token < n_vocab_) {
            bias_.emplace_back(token, bias);
        }
    }
    if (sampling.ignore_eos) {
        for (token_id t = 0; t < n_vocab_; ++t) {
            if (llama_vocab_is_eog(vocab_, t)) {
                bias_.emplace_back(t, logit_banned);
            }
        }
    }
}

// The breakers take long to find, so they are kept from one text to the next.
void logit_changes::prepare_dry(const sampling_params & sampling) {
    if (sampling.dry() && (!breakers_ || breakers_of_ != sampling.dry_sequence_breakers)) {
        breakers_.reset();
        breakers_of_ = sampling.dry_sequence_breakers;
        breakers_    = dry_breakers_of(vocab_, breakers_of_);
    }
}

void logit_changes::apply(float * logits, const sampling_params & sampling, std::span<const token_id> text) {
    for (const auto & [token, bias] : bias_) {
        change(logits, token, logits[token] + bias);
    }
    if (sampling.penalised()) {
        penalise(logits, sampling, text);
    }
    if (sampling.dry()) {
        discourage(logits, sampling, text);
    }
}

void logit_changes::restore(float * logits) noexcept {
    for (; !before_.empty(); before_.pop_back()) {
        logits[before_.back().token] = before_.back().logit;
    }
}

void logit_changes::change(float * logits, token_id token, float to) {
    before_.push_back({token, logits[token]});
    logits[token] = to;
}

// The same arithmetic as llama_sampler_penalties_apply, but only visits the tokens that it changes.
void logit_changes::penalise(float * logits, const sampling_params & sampling, std::span<const token_id> text) {
    counts_.resize(size_t(n_vocab_));
    const auto past  = text.last(std::min(text.size(), size_t(look_back(sampling))));
    const auto known = [this](token_id t) { return t >= 0 && t < n_vocab_; };
    for (const token_id t : past) {
        if (known(t)) {
            ++counts_[size_t(t)];
        }
    }
    for (const token_id t : past) {
        if (!known(t) || counts_[size_t(t)] == 0) {
            continue;
        }
        const auto  count    = float(std::exchange(counts_[size_t(t)], 0));
        const float logit    = logits[t];
        const float repeated = logit <= 0.0f ? logit * sampling.repeat_penalty : logit / sampling.repeat_penalty;
        change(logits, t, repeated - (count * sampling.frequency_penalty + sampling.presence_penalty));
    }
}

// Lowers the logits of tokens that would continue a repetition.
void logit_changes::discourage(float * logits, const sampling_params & sampling, std::span<const token_id> text) {
    for (const dry_search::found & f : dry_.penalties(text, sampling, *breakers_)) {
        if (f.token >= 0 && f.token < n_vocab_) {
            change(logits, f.token, logits[f.token] - f.penalty);
        }
    }
}

} // namespace duo
