#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace duo {

namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

// How much a draft's logits differ from the target's: the scale of a Gumbel-like error. The softmax of the draft's
// logits, divided by this scale, is the chance that a token is the target's best. This and the next constant are fitted
// on the demo pair by likelihood (benchmarks/measure_chances.py).
constexpr double logit_softness = 0.33;
// The part of a race's error that does not shrink with a high temperature: more noise brings in less likely tokens, on
// which the models differ more.
constexpr double race_softness = 0.5;
constexpr size_t n_rivals      = 8; // candidates that share the whole probability

// How likely the target's filters leave a token that a draft races (kept_bound) is a logistic function of its distance
// from the edge of the draft's own selection; this is its width in nats.
constexpr double edge_width = 0.6;
// Noise makes one of many dropped tokens look good. The best token that the draft's own filters leave is the target's
// more often than any other, so it leads by this, in units of the race's error.
constexpr double least_lead = 0.6;

constexpr auto by_logit = [](const llama_token_data & a, const llama_token_data & b) { return a.logit < b.logit; };

constexpr size_t n_states_draft = 32; // number of texts of a tree whose grammar states are kept

// How far a draft's scores are from the target's, in nats; 0 would be a draft that is always right. Both race by logit
// / temperature + the same noise. So the draft's own probability of a token is not its chance to win, and the error of
// the logits is divided by the temperature like the logits. Two independent errors add in squares.
double softness_of(const sampling_params & sampling, float temperature) {
    return sampling.greedy() ? logit_softness : std::hypot(logit_softness / double(temperature), race_softness);
}

} // namespace

sampler::sampler(const llama_vocab * vocab, int32_t n_vocab, bool with_logp)
    : vocab_(vocab), n_vocab_(n_vocab), with_logp_(with_logp), changes_(vocab, n_vocab) {
}

void sampler::prepare(const sampling_params & sampling) {
    if (stands_for(sampling)) {
        return;
    }
    ++n_setups_;
    if (!std::exchange(ready_, false)) { // the first time, or after an exception: nothing below can be relied on
        grammar_.reset();
        params_ = {};
    }
    if (sampling.grammar != params_.grammar) {
        grammar_.reset();
        n_held_ = held_us_ = 0;
        if (!sampling.grammar.empty()) {
            grammar_.emplace(vocab_, sampling.grammar, with_logp_ ? n_states_draft : 1);
        }
    }
    changes_.prepare(sampling);
    params_ = sampling;
    filter_.reset(llama_sampler_chain_init({.no_perf = true}));
    if (sampling.top_p < 1.0f) {
        llama_sampler_chain_add(filter_.get(), llama_sampler_init_top_p(sampling.top_p, 1));
    }
    if (sampling.min_p > 0.0f) {
        llama_sampler_chain_add(filter_.get(), llama_sampler_init_min_p(sampling.min_p, 1));
    }
    ready_ = true;
}

void sampler::read(float * logits, const sampling_params & sampling, std::span<const token_id> text) {
    changes_.apply(logits, sampling, text);
    row_.read(logits, n_vocab_);
}

// Puts the tokens within the bound into data_, and perhaps some more, without those that are forbidden.
void sampler::look(const kept_bound & bound) {
    bound_ = bound;
    row_.within(bound, top_);
    data_.clear();
    for (const top_logit & t : top_) {
        if (t.logit != minus_infinity) {
            data_.push_back({t.token, t.logit, t.logit});
        }
    }
}

// Puts what the filters may keep into data_. in_order: best first, even if no filter needs that.
void sampler::look_for_kept(const sampling_params & sampling, size_t n_text, bool in_order) {
    const bool xtc = xtc_applies(sampling, n_text);
    reach_         = sampling.top_n_sigma > 0.0f ? double(sampling.top_n_sigma) * row_.deviation() : 0.0;
    kept_bound all = kept_bound::of(sampling, size_t(n_vocab_), row_.max(), reach_, xtc, with_logp_);
    all.in_order   = all.in_order || in_order;
    look(all);
}

// In llama.cpp's order, from top-n-sigma on; top-k came before, as both keep the best. Forbidden tokens are not among
// the candidates, whose number and probabilities count.
void sampler::filter(const sampling_params & sampling, size_t n_text) {
    if (sampling.top_n_sigma > 0.0f) {
        candidate_filters::keep_within(data_, reach_);
    }
    if (sampling.typical_p < 1.0f) {
        filters_.keep_typical(data_, sampling.typical_p);
    }
    llama_token_data_array kept{data_.data(), data_.size(), -1, true};
    llama_sampler_apply(filter_.get(), &kept);
    if (kept.size == data_.size() && !bound_.whole) { // and perhaps more
        look(bound_.without_floor());
        data_.resize(std::min(data_.size(), bound_.n_most));
        filter(sampling, n_text);
        return;
    }
    data_.resize(kept.size);
    if (xtc_applies(sampling, n_text)) {
        filters_.exclude_top_choices(data_, sampling.xtc_threshold);
    }
    temperature_ = filters_.temperature(data_, sampling);
}

// Filters the first n_own of data_ and sets p to the score in the race: log p + noise. A constant offset does not
// matter, but a large one would swallow the noise.
void sampler::score(const sampling_params & sampling, std::span<const token_id> text, size_t n_own) {
    dropped_.clear();
    if (sampling.greedy() || data_.empty()) {
        return;
    }
    if (with_logp_ && bound_.in_order) {
        dropped_.assign(data_.begin(), data_.begin() + ptrdiff_t(std::min(data_.size(), kept_bound::n_raced)));
        data_.resize(std::min(data_.size(), n_own));
    }
    const size_t pos = sampling.position_after(text.size());
    filter(sampling, pos);
    const float best = std::max_element(data_.begin(), data_.end(), by_logit)->logit / temperature_;
    const auto  race = [&](llama_token_data & d) {
        d.logit /= temperature_;
        d.p = d.logit - best + gumbel_noise(sampling.seed, pos, d.id);
    };
    std::for_each(data_.begin(), data_.end(), race);
    if (with_logp_) {
        std::for_each(dropped_.begin(), dropped_.end(), race);
        weigh(sampling);
    }
}

// Draft: the scores of all candidates take account of the target's filters, which leave others than the draft's own.
void sampler::weigh(const sampling_params & sampling) {
    const auto is_kept = [this](const llama_token_data & d) {
        return std::any_of(data_.begin(), data_.end(), [&d](const llama_token_data & k) { return k.id == d.id; });
    };
    std::erase_if(dropped_, is_kept);
    if (dropped_.empty()) {
        return;
    }
    const float last = std::min_element(data_.begin(), data_.end(), by_logit)->logit;
    float       next = minus_infinity; // the best of those below it
    for (const llama_token_data & d : dropped_) {
        next = d.logit <= last ? std::max(next, d.logit) : next;
    }
    const float  edge     = next == minus_infinity ? last : 0.5f * (last + next);
    const double softness = softness_of(sampling, temperature_);
    const auto   lower    = [&](llama_token_data & d, double distance) { // all logits are divided by the temperature
        d.p -= float(softness * std::log1p(std::exp(-distance * double(temperature_) / edge_width)));
    };
    float best = minus_infinity;
    for (llama_token_data & d : data_) {
        lower(d, double(d.logit - edge));
        best = std::max(best, d.p);
    }
    for (llama_token_data & d : dropped_) {
        lower(d, -std::abs(double(d.logit - edge))); // XTC and typical-p drop probable tokens
        d.p = std::min(d.p, best - float(least_lead * softness));
    }
    data_.insert(data_.end(), dropped_.begin(), dropped_.end());
}

// Sorts the first n of data_ by their score in the race.
void sampler::sort(size_t n) {
    std::partial_sort(data_.begin(), data_.begin() + ptrdiff_t(std::min(n, data_.size())), data_.end(),
                      [](const auto & a, const auto & b) { return a.p > b.p || (a.p == b.p && a.id < b.id); });
}

// Writes the first entries of data_, which are sorted. The target runs the same race with somewhat different scores. A
// candidate far behind is hardly ever its winner, however probable it was before the noise.
int32_t sampler::rank(const sampling_params & sampling, std::span<candidate> out) {
    const double softness = softness_of(sampling, temperature_);
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

int32_t sampler::candidates(float * logits, const sampling_params & sampling, std::span<const token_id> text,
                            std::span<candidate> out) {
    const logit_changes::restored restored(changes_, logits);
    prepare(sampling);
    read(logits, sampling, text);
    return chosen(sampling, text, out);
}

// Chooses candidates from row_.
int32_t sampler::chosen(const sampling_params & sampling, std::span<const token_id> text, std::span<candidate> out) {
    if (sampling.greedy()) {
        look({.n_most = with_logp_ ? std::max(out.size(), n_rivals) : out.size()});
    } else {
        look_for_kept(sampling, sampling.position_after(text.size()), false);
    }
    const kept_bound looked_at = bound_;
    score(sampling, text, looked_at.n_most);
    if (grammar_ && !grammar_too_slow()) {
        return held(sampling, text, looked_at.n_all(), out);
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
