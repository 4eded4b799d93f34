#include "ordered_samplers.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace duo {

namespace {

// It compares each candidate with each other one, so it gets the best ones only.
constexpr int32_t n_infill_most = 128;

// The user's -1 means the whole text.
int32_t n_looked_back(int32_t n, const model_weights & w) {
    return n < 0 ? w.n_ctx() : n;
}

// With its parameters as llama.cpp's common/sampling.cpp gives them; nullptr: there is no such sampler.
llama_sampler * sampler_named(const std::string & name, const sampling_params & s, const model_weights & w) {
    if (name == "penalties") {
        return llama_sampler_init_penalties(w.n_vocab(), n_looked_back(s.repeat_last_n, w), s.repeat_penalty,
                                            s.frequency_penalty, s.presence_penalty);
    }
    if (name == "dry") {
        std::vector<const char *> breakers;
        for (const std::string & b : s.dry_sequence_breakers) {
            breakers.push_back(b.c_str());
        }
        return llama_sampler_init_dry(w.vocab(), s.dry_multiplier, s.dry_base, s.dry_allowed_length,
                                      n_looked_back(s.dry_penalty_last_n, w), breakers.data(), breakers.size());
    }
    return name == "top_n_sigma"   ? llama_sampler_init_top_n_sigma(s.top_n_sigma)
           : name == "top_k"       ? llama_sampler_init_top_k(s.top_k)
           : name == "typ_p"       ? llama_sampler_init_typical(s.typical_p, 1)
           : name == "top_p"       ? llama_sampler_init_top_p(s.top_p, 1)
           : name == "min_p"       ? llama_sampler_init_min_p(s.min_p, 1)
           : name == "xtc"         ? llama_sampler_init_xtc(s.xtc_probability, s.xtc_threshold, 1, uint32_t(s.seed))
           : name == "infill"      ? llama_sampler_init_infill(w.vocab())
           : name == "temperature" ? llama_sampler_init_temp_ext(s.temp, s.dynatemp_range, s.dynatemp_exponent)
                                   : nullptr;
}

} // namespace

ordered_samplers::ordered_samplers(const model_weights & weights, const std::vector<std::string> & names,
                                   const sampling_params & sampling)
    : vocab_(weights.vocab()), sampling_(sampling),
      chain_(llama_sampler_chain_init(llama_sampler_chain_default_params())) {
    for (const std::string & name : names) {
        llama_sampler * s = sampler_named(name, sampling, weights);
        if (s == nullptr) {
            throw error(error_kind::bad_value, "there is no sampler " + name);
        }
        if (name == "infill") {
            if (llama_vocab_eot(vocab_) == LLAMA_TOKEN_NULL && llama_vocab_eos(vocab_) == LLAMA_TOKEN_NULL) {
                llama_sampler_free(s);
                throw error(error_kind::bad_value,
                            "the sampler infill needs a model that has an end token; leave infill out");
            }
            llama_sampler_chain_add(chain_.get(), llama_sampler_init_top_k(n_infill_most));
        }
        llama_sampler_chain_add(chain_.get(), s); // owns it
    }
}

bool ordered_samplers::on_row(std::span<const token_id> text, std::span<float> logits) {
    for (; n_seen_ < text.size(); ++n_seen_) {
        llama_sampler_accept(chain_.get(), text[n_seen_]);
    }
    reconsider(text, logits);
    return true;
}

void ordered_samplers::reconsider(std::span<const token_id> /*text*/, std::span<float> logits) {
    constexpr float never = -std::numeric_limits<float>::infinity();
    for (const auto & [token, bias] : sampling_.logit_bias) {
        if (token >= 0 && size_t(token) < logits.size()) {
            logits[size_t(token)] += bias;
        }
    }
    data_.clear();
    for (size_t i = 0; i < logits.size(); ++i) {
        if (logits[i] > never && !(sampling_.ignore_eos && llama_vocab_is_eog(vocab_, token_id(i)))) {
            data_.push_back({.id = token_id(i), .logit = logits[i], .p = 0.0f});
        }
    }
    std::fill(logits.begin(), logits.end(), never);
    if (data_.empty()) {
        return; // whoever chooses says why
    }
    llama_token_data_array all{.data = data_.data(), .size = data_.size(), .selected = -1, .sorted = false};
    llama_sampler_apply(chain_.get(), &all);
    for (size_t i = 0; i < all.size; ++i) {
        logits[size_t(all.data[i].id)] = all.data[i].logit;
    }
}

sampling_params chosen_from(sampling_params sampling) {
    sampling_params left;
    left.temp     = 1.0f; // already in the logits
    left.top_k    = 0;
    left.top_p    = 1.0f;
    left.min_p    = 0.0f;
    left.seed     = sampling.seed;
    left.accept   = sampling.accept;
    left.grammar  = std::move(sampling.grammar);
    left.n_prompt = sampling.n_prompt;

    left.posterior_threshold = sampling.posterior_threshold;
    left.posterior_alpha     = sampling.posterior_alpha;
    left.accept_top          = sampling.accept_top;
    return left;
}

} // namespace duo
