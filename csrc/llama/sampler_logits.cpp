// What changes the logits of a row before candidates are chosen: bias, penalties, DRY.
#include <algorithm>
#include <limits>
#include <utility>

#include "dry_breakers.h"
#include "sampler.h"

namespace duo {

namespace {

constexpr float  minus_infinity = -std::numeric_limits<float>::infinity();
constexpr size_t n_states_draft = 32; // number of texts of a tree whose grammar states are kept

// Number of tokens that the penalties see; the user's -1 means the whole text.
int32_t look_back(const sampling_params & sampling) {
    return sampling.repeat_last_n < 0 ? 1 << 20 : sampling.repeat_last_n;
}

} // namespace

void sampler::prepare(const sampling_params & sampling) {
    if (stands_for(sampling)) {
        return;
    }
    ++n_setups_;
    if (!std::exchange(ready_, false)) { // the first time, or after an exception: nothing below can be relied on
        grammar_.reset();
        breakers_.reset();
        params_ = {};
    }
    if (sampling.grammar != params_.grammar) {
        grammar_.reset();
        n_held_ = held_us_ = 0;
        if (!sampling.grammar.empty()) {
            grammar_.emplace(vocab_, sampling.grammar, with_logp_ ? n_states_draft : 1);
        }
    }
    prepare_dry(sampling);
    params_ = sampling;
    bias_.clear();
    for (const auto & [token, bias] : sampling.logit_bias) {
        if (token >= 0 && token < n_vocab_) {
            bias_.emplace_back(token, bias);
        }
    }
    if (sampling.ignore_eos) {
        for (token_id t = 0; t < n_vocab_; ++t) {
            if (llama_vocab_is_eog(vocab_, t)) {
                bias_.emplace_back(t, minus_infinity);
            }
        }
    }
    filter_.reset(llama_sampler_chain_init({.no_perf = true}));
    if (sampling.top_p < 1.0f) {
        llama_sampler_chain_add(filter_.get(), llama_sampler_init_top_p(sampling.top_p, 1));
    }
    if (sampling.min_p > 0.0f) {
        llama_sampler_chain_add(filter_.get(), llama_sampler_init_min_p(sampling.min_p, 1));
    }
    ready_ = true;
}

// The breakers take long to find, so they are kept from one text to the next.
void sampler::prepare_dry(const sampling_params & sampling) {
    if (sampling.dry_sequence_breakers != params_.dry_sequence_breakers) {
        breakers_.reset();
    }
    if (sampling.dry() && !breakers_) {
        breakers_ = dry_breakers_of(vocab_, sampling.dry_sequence_breakers);
    }
}

// Bias, penalties and DRY change some tens of tokens only. Copying the row would cost more than choosing from it.
void sampler::read(float * logits, const sampling_params & sampling, std::span<const token_id> text) {
    for (const auto & [token, bias] : bias_) {
        change(logits, token, logits[token] + bias);
    }
    if (sampling.penalised()) {
        penalise(logits, sampling, text);
    }
    if (sampling.dry()) {
        discourage(logits, sampling, text);
    }
    row_.read(logits, n_vocab_);
}

void sampler::change(float * logits, token_id token, float to) {
    before_.push_back({token, logits[token]});
    logits[token] = to;
}

// The same arithmetic as llama_sampler_penalties_apply, but only visits the tokens that it changes.
void sampler::penalise(float * logits, const sampling_params & sampling, std::span<const token_id> text) {
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
void sampler::discourage(float * logits, const sampling_params & sampling, std::span<const token_id> text) {
    for (const dry_search::found & f : dry_.penalties(text, sampling, *breakers_)) {
        if (f.token >= 0 && f.token < n_vocab_) {
            change(logits, f.token, logits[f.token] - f.penalty);
        }
    }
}

} // namespace duo
