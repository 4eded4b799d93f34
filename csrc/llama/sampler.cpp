#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace duo {

namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

// How far a draft's scores in the race (log-probability + noise) are from the target's, in nats: 0 would be a draft
// that is always right. Both add the same noise, so what the draft's own probability says of a token is not its chance
// to win.
constexpr double race_softness = 1.0;
// The same without noise: how much the two models' logits differ. A draft's softmax is too modest about its best token
// (measured on the demo pair: 0.27 meant 69%, 0.5 meant 88%); at 0.5 it says about what is true.
constexpr double greedy_softness = 0.5;
constexpr size_t n_rivals        = 8; // candidates that share all of the chance

// Tokens that the penalties see; the user's -1 means all of the text.
int32_t look_back(const sampling_params & sampling) {
    return sampling.repeat_last_n < 0 ? 1 << 20 : sampling.repeat_last_n;
}

} // namespace

sampler::sampler(const llama_vocab * vocab, int32_t n_vocab, bool with_logp)
    : vocab_(vocab), n_vocab_(n_vocab), with_logp_(with_logp) {
}

void sampler::prepare(const sampling_params & sampling) {
    if (ready_ && params_ == sampling) {
        return;
    }
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
    llama_sampler_chain_add(filter_.get(), llama_sampler_init_temp(sampling.temp));
    ready_ = true;
}

// Logits with bias and penalties into row_; copied only where there are any.
void sampler::read(const float * logits, const sampling_params & sampling, std::span<const token_id> text) {
    if (!bias_.empty() || sampling.penalised()) {
        logits_.assign(logits, logits + n_vocab_);
        for (const auto & [token, bias] : bias_) {
            logits_[size_t(token)] += bias;
        }
        if (sampling.penalised()) {
            penalise(sampling, text);
        }
        logits = logits_.data();
    }
    row_.read(logits, n_vocab_);
}

// llama_sampler_penalties_apply to the letter, but looks only at tokens that it changes.
void sampler::penalise(const sampling_params & sampling, std::span<const token_id> text) {
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
        const auto count = float(std::exchange(counts_[size_t(t)], 0));
        float &    logit = logits_[size_t(t)];
        logit            = logit <= 0.0f ? logit * sampling.repeat_penalty : logit / sampling.repeat_penalty;
        logit -= count * sampling.frequency_penalty + sampling.presence_penalty;
    }
}

int32_t sampler::best(std::span<candidate> out) {
    row_.top_k(with_logp_ ? std::max(out.size(), n_rivals) : out.size(), top_);
    if (top_.empty() || top_[0].logit == minus_infinity) {
        return 0;
    }
    // The chance that the target's largest logit is the same one: a softmax of the draft's, sharper than its own.
    const auto behind = [this](size_t i) { return double(top_[i].logit - top_[0].logit) / greedy_softness; };
    double     sum    = 0.0;
    for (size_t i = 0; with_logp_ && i < top_.size(); ++i) {
        sum += std::exp(behind(i));
    }
    const size_t n = std::min(out.size(), top_.size());
    for (size_t i = 0; i < n; ++i) {
        out[i] = {.token = top_[i].token, .logp = with_logp_ ? float(behind(i) - std::log(sum)) : top_[i].logit};
    }
    return int32_t(n);
}

int32_t sampler::candidates(const float * logits, const sampling_params & sampling, std::span<const token_id> text,
                            std::span<candidate> out) {
    prepare(sampling);
    read(logits, sampling, text);
    if (sampling.greedy()) {
        return best(out);
    }

    const bool limited = sampling.top_k > 0 && sampling.top_k < n_vocab_;
    row_.top_k(limited ? size_t(sampling.top_k) : size_t(n_vocab_), top_);
    if (top_.empty() || top_[0].logit == minus_infinity) {
        return 0;
    }
    data_.resize(top_.size());
    std::transform(top_.begin(), top_.end(), data_.begin(),
                   [](const top_logit & t) { return llama_token_data{t.token, t.logit, 0.0f}; });
    llama_token_data_array kept{data_.data(), data_.size(), -1, true};
    llama_sampler_apply(filter_.get(), &kept);

    // kept.data[].p becomes the race of log p + noise; its constant does not matter, but a large one swallows the
    // noise.
    const float best = kept.data[0].logit;
    for (size_t i = 0; i < kept.size; ++i) {
        llama_token_data & d = kept.data[i];
        d.p                  = d.logit - best + gumbel_noise(sampling.seed, text.size(), d.id);
    }
    const size_t n = std::min(out.size(), kept.size);
    std::partial_sort(kept.data, kept.data + n, kept.data + kept.size,
                      [](const auto & a, const auto & b) { return a.p > b.p || (a.p == b.p && a.id < b.id); });
    // The target runs the same race with somewhat other scores: a candidate far behind is hardly ever its first,
    // however probable it was before the noise.
    const auto ahead = [&kept](size_t i) { return double(kept.data[i].p - kept.data[0].p) / race_softness; };
    double     sum   = 0.0;
    for (size_t i = 0; with_logp_ && n > 0 && i < kept.size; ++i) {
        sum += std::exp(ahead(i));
    }
    for (size_t i = 0; i < n; ++i) {
        out[i] = {.token = kept.data[i].id, .logp = with_logp_ ? float(ahead(i) - std::log(sum)) : kept.data[i].logit};
    }
    return int32_t(n);
}

float sampler::logprobs(const float * logits, token_id token, std::span<candidate> out) {
    row_.read(logits, n_vocab_);
    const double norm = row_.log_sum_exp();
    row_.top_k(out.size(), top_);
    const auto filled = std::transform(top_.begin(), top_.end(), out.begin(), [norm](const top_logit & t) {
        return candidate{.token = t.token, .logp = float(double(t.logit) - norm)};
    });
    std::fill(filled, out.end(), candidate{});
    return float(double(logits[token]) - norm);
}

} // namespace duo
