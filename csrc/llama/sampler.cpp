#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "../core/clock.h"
#include "../error.h"

namespace duo {

namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

// How much a draft's logits differ from the target's: the scale of the Gumbel-like error that makes a softmax of them,
// divided by it, the chance that the target likes a token best. Fitted, as the next, on the demo pair by likelihood
// (benchmarks/measure_chances.py).
constexpr double logit_softness = 0.33;
// The part of a race's error that a high temperature does not divide away: with more noise, tokens further down come
// in, on which the models differ more, and some that a filter leaves to one of them alone.
constexpr double race_softness = 0.4;
constexpr size_t n_rivals      = 8; // candidates that share all of the chance

// Under a grammar.
constexpr size_t n_states_draft = 32;   // texts of a tree whose states are kept
constexpr size_t n_asked        = 8;    // candidates that go through it first
constexpr size_t n_wider        = 8;    // then so many times more
constexpr size_t n_widest_draft = 4096; // tokens that a draft looks through for one that is allowed
// A draft is not held to a grammar that takes it longer than this on average, after so many rows (a thousand
// alternatives make a state large): its guesses are rejected then.
constexpr int64_t most_us_draft = 2000;
constexpr int64_t n_held_least  = 3;

// How far a draft's scores are from the target's, in nats: 0 would be a draft that is always right. Both race by logit
// / temperature + the same noise, so what the draft's own probability says of a token is not its chance to win, and the
// error of the logits is divided by the temperature as they are. Two independent errors add in squares.
double softness_of(const sampling_params & sampling) {
    return sampling.greedy() ? logit_softness : std::hypot(logit_softness / double(sampling.temp), race_softness);
}

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
    if (sampling.grammar != params_.grammar) {
        grammar_.reset();
        n_held_ = held_us_ = 0;
        ready_             = false; // should the next line throw
        if (!sampling.grammar.empty()) {
            grammar_.emplace(vocab_, sampling.grammar, with_logp_ ? n_states_draft : 1);
        }
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

// Bias and penalties are of some tens of tokens: a copy of the row would cost more than choosing from it.
void sampler::read(float * logits, const sampling_params & sampling, std::span<const token_id> text) {
    for (const auto & [token, bias] : bias_) {
        change(logits, token, logits[token] + bias);
    }
    if (sampling.penalised()) {
        penalise(logits, sampling, text);
    }
    row_.read(logits, n_vocab_);
}

void sampler::change(float * logits, token_id token, float to) {
    before_.push_back({token, logits[token]});
    logits[token] = to;
}

// llama_sampler_penalties_apply to the letter, but looks only at tokens that it changes.
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

// The k best into data_; what must not come is not among them.
void sampler::look(size_t k) {
    row_.top_k(k, top_);
    data_.clear();
    for (const top_logit & t : top_) {
        if (t.logit != minus_infinity) {
            data_.push_back({t.token, t.logit, t.logit});
        }
    }
}

// Filters data_, and makes p what its candidates race by: log p + noise. Its constant does not matter, but a large one
// swallows the noise.
void sampler::score(const sampling_params & sampling, std::span<const token_id> text) {
    if (sampling.greedy() || data_.empty()) {
        return;
    }
    llama_token_data_array kept{data_.data(), data_.size(), -1, true};
    llama_sampler_apply(filter_.get(), &kept);
    data_.resize(kept.size);
    const float best = data_[0].logit;
    for (llama_token_data & d : data_) {
        d.p = d.logit - best + gumbel_noise(sampling.seed, text.size(), d.id);
    }
}

// The first n of data_ in the order of the race.
void sampler::sort(size_t n) {
    std::partial_sort(data_.begin(), data_.begin() + ptrdiff_t(std::min(n, data_.size())), data_.end(),
                      [](const auto & a, const auto & b) { return a.p > b.p || (a.p == b.p && a.id < b.id); });
}

// Writes the first of data_, which are sorted. The target runs the same race with somewhat other scores: a candidate
// far behind is hardly ever its first, however probable it was before the noise.
int32_t sampler::rank(const sampling_params & sampling, std::span<candidate> out) {
    const double softness = softness_of(sampling);
    const auto   ahead    = [this, softness](size_t i) { return double(data_[i].p - data_[0].p) / softness; };
    double       sum      = 0.0;
    for (size_t i = 0; with_logp_ && i < data_.size(); ++i) {
        sum += std::exp(ahead(i));
    }
    const size_t n = std::min(out.size(), data_.size());
    for (size_t i = 0; i < n; ++i) {
        out[i] = {.token = data_[i].id, .logp = with_logp_ ? float(ahead(i) - std::log(sum)) : data_[i].logit};
    }
    return int32_t(n);
}

bool sampler::too_dear() {
    if (with_logp_ && n_held_ >= n_held_least && held_us_ > n_held_ * most_us_draft) {
        grammar_.reset();
    }
    return !grammar_;
}

// The race goes on until a candidate that the grammar allows comes in. If all that the filters left are refused, k is
// raised, and the filters see only what is allowed.
int32_t sampler::held(const sampling_params & sampling, std::span<const token_id> text, size_t k,
                      std::span<candidate> out) {
    const int64_t t0 = now_us();
    grammar_->stand_behind(text.subspan(std::min(text.size(), size_t(std::max(0, sampling.n_prompt)))));
    held_us_ += now_us() - t0;
    ++n_held_;
    for (size_t n = n_asked; !data_.empty(); n *= n_wider) {
        n = std::min(n, data_.size());
        sort(n);
        first_.assign(data_.begin(), data_.begin() + ptrdiff_t(n));
        grammar_->keep_allowed(first_);
        if (!first_.empty()) {
            data_.erase(data_.begin(), data_.begin() + ptrdiff_t(n));
            data_.insert(data_.begin(), first_.begin(), first_.end());
            return rank(sampling, out.first(std::min(out.size(), first_.size())));
        }
        if (n == data_.size()) {
            break;
        }
    }
    const size_t n_widest = with_logp_ ? std::min(n_widest_draft, size_t(n_vocab_)) : size_t(n_vocab_);
    do {
        k = std::min(k * n_wider, n_widest);
        look(k);
        grammar_->keep_allowed(data_);
    } while (data_.empty() && k < n_widest);
    if (data_.empty() && !with_logp_ && !grammar_->complete()) {
        throw error(error_kind::bad_value,
                    "the grammar requires more text, but no allowed token fits it; change the grammar or the biases");
    }
    score(sampling, text);
    sort(out.size());
    return rank(sampling, out);
}

int32_t sampler::candidates(float * logits, const sampling_params & sampling, std::span<const token_id> text,
                            std::span<candidate> out) {
    struct restorer { // also if something throws
        ~restorer() {
            for (; !before.empty(); before.pop_back()) {
                logits[before.back().token] = before.back().logit;
            }
        }
        std::vector<top_logit> & before;
        float *                  logits;
    } const restored{before_, logits};
    prepare(sampling);
    read(logits, sampling, text);
    return chosen(sampling, text, out);
}

// From row_.
int32_t sampler::chosen(const sampling_params & sampling, std::span<const token_id> text, std::span<candidate> out) {
    const bool   limited = sampling.top_k > 0 && sampling.top_k < n_vocab_;
    const size_t k       = !sampling.greedy() ? size_t(limited ? sampling.top_k : n_vocab_)
                           : with_logp_       ? std::max(out.size(), n_rivals)
                                              : out.size();
    look(k);
    score(sampling, text);
    if (grammar_ && !too_dear()) {
        return held(sampling, text, k, out);
    }
    sort(out.size());
    return rank(sampling, out);
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
