#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "../error.h"

namespace duo {

namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

// Higher logit first; equal logits by id, so that the order is a function of the logits alone.
bool better(const llama_token_data & a, const llama_token_data & b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// Tokens that the penalties see; the user's -1 means all of the text.
int32_t look_back(const sampling_params & sampling) {
    return sampling.repeat_last_n < 0 ? 1 << 20 : sampling.repeat_last_n;
}

// log(sum(exp(logits))); terms 20 nats below the largest do not show in a float.
double log_sum_exp(const float * logits, int32_t n) {
    const float max = *std::max_element(logits, logits + n);
    double      sum = 0.0;
    for (int32_t i = 0; i < n; ++i) {
        if (logits[i] > max - 20.0f) {
            sum += std::exp(double(logits[i] - max));
        }
    }
    return double(max) + std::log(sum);
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
    const auto new_chain = [] { return chain_ptr(llama_sampler_chain_init({.no_perf = true})); };
    penalty_.reset();
    if (sampling.penalised()) {
        penalty_ = new_chain();
        llama_sampler_chain_add(penalty_.get(),
                                llama_sampler_init_penalties(n_vocab_, look_back(sampling), sampling.repeat_penalty,
                                                             sampling.frequency_penalty, sampling.presence_penalty));
    }
    filter_ = new_chain();
    if (sampling.top_p < 1.0f) {
        llama_sampler_chain_add(filter_.get(), llama_sampler_init_top_p(sampling.top_p, 1));
    }
    if (sampling.min_p > 0.0f) {
        llama_sampler_chain_add(filter_.get(), llama_sampler_init_min_p(sampling.min_p, 1));
    }
    llama_sampler_chain_add(filter_.get(), llama_sampler_init_temp(sampling.temp));
    ready_ = true;
}

const float * sampler::adjusted(const float * logits) {
    if (bias_.empty()) {
        return logits;
    }
    logits_.assign(logits, logits + n_vocab_);
    for (const auto & [token, bias] : bias_) {
        logits_[size_t(token)] += bias;
    }
    return logits_.data();
}

// The k largest logits into data_, best first. Most logits fail the one comparison with the smallest that is kept.
void sampler::keep_top(const float * logits, size_t k) {
    data_.clear();
    for (token_id t = 0; t < n_vocab_; ++t) {
        if (data_.size() == k ? !(logits[t] > data_.front().logit) : std::isnan(logits[t])) {
            continue;
        }
        if (data_.size() == k) {
            std::pop_heap(data_.begin(), data_.end(), better);
            data_.pop_back();
        }
        data_.push_back({t, logits[t], 0.0f});
        std::push_heap(data_.begin(), data_.end(), better);
    }
    std::sort_heap(data_.begin(), data_.end(), better);
}

int32_t sampler::best(const float * logits, std::span<candidate> out) {
    if (out.size() == 1) {
        const float * max = std::max_element(logits, logits + n_vocab_);
        out[0]            = {.token = token_id(max - logits), .logp = *max};
    } else {
        keep_top(logits, out.size());
        for (size_t i = 0; i < data_.size(); ++i) {
            out[i] = {.token = data_[i].id, .logp = data_[i].logit};
        }
    }
    const auto n = int32_t(out.size() == 1 ? 1 : data_.size());
    if (n == 0 || out[0].logp == minus_infinity) {
        return 0;
    }
    if (with_logp_) {
        const auto norm = float(log_sum_exp(logits, n_vocab_));
        for (int32_t i = 0; i < n; ++i) {
            out[size_t(i)].logp -= norm;
        }
    }
    return n;
}

int32_t sampler::candidates(const float * logits, const sampling_params & sampling, std::span<const token_id> text,
                            std::span<candidate> out) {
    prepare(sampling);
    logits = adjusted(logits);
    if (sampling.greedy() && !penalty_) {
        return best(logits, out);
    }

    if (penalty_) {
        data_.resize(size_t(n_vocab_));
        for (token_id t = 0; t < n_vocab_; ++t) {
            data_[size_t(t)] = {t, logits[t], 0.0f};
        }
        llama_sampler_reset(penalty_.get());
        for (const token_id t : text.last(std::min(text.size(), size_t(look_back(sampling))))) {
            llama_sampler_accept(penalty_.get(), t);
        }
        llama_token_data_array all{data_.data(), data_.size(), -1, false};
        llama_sampler_apply(penalty_.get(), &all);
        logits_.resize(size_t(n_vocab_));
        for (const llama_token_data & d : data_) {
            logits_[size_t(d.id)] = d.logit;
        }
        logits = logits_.data();
        if (sampling.greedy()) {
            return best(logits, out);
        }
    }
    const bool limited = sampling.top_k > 0 && sampling.top_k < n_vocab_;
    keep_top(logits, limited ? size_t(sampling.top_k) : size_t(n_vocab_));
    if (data_.empty() || data_[0].logit == minus_infinity) {
        return 0;
    }
    llama_token_data_array kept{data_.data(), data_.size(), -1, true};
    llama_sampler_apply(filter_.get(), &kept);

    double norm = 0.0;
    if (with_logp_) {
        double sum = 0.0;
        for (size_t i = 0; i < kept.size; ++i) {
            sum += std::exp(double(kept.data[i].logit - kept.data[0].logit));
        }
        norm = double(kept.data[0].logit) + std::log(sum);
    }
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
    for (size_t i = 0; i < n; ++i) {
        out[i] = {.token = kept.data[i].id, .logp = float(double(kept.data[i].logit) - norm)};
    }
    return int32_t(n);
}

float sampler::logprobs(const float * logits, token_id token, std::span<candidate> out) {
    const double norm = log_sum_exp(logits, n_vocab_);
    if (!out.empty()) {
        keep_top(logits, out.size());
        for (size_t i = 0; i < out.size() && i < data_.size(); ++i) {
            out[i] = {.token = data_[i].id, .logp = float(double(data_[i].logit) - norm)};
        }
        std::fill(out.begin() + std::ptrdiff_t(std::min(out.size(), data_.size())), out.end(), candidate{});
    }
    return float(double(logits[token]) - norm);
}

} // namespace duo
