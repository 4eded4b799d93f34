// The distribution from which a row's token is drawn, for rules of acceptance that need more than the draw.
#include <algorithm>
#include <cmath>

#include "sampler.h"

namespace duo {

// The same as candidates() draws from: the filters come first, and what the grammar refuses then loses the race. If it
// refuses all, the filters see allowed tokens only.
void sampler::chances(float * logits, const sampling_params & sampling, std::span<const token_id> text,
                      std::vector<candidate> & out) {
    const logit_changes::restored restored(changes_, logits);
    prepare(sampling);
    read(logits, sampling, text);
    const size_t k = n_kept_most(sampling);
    look(k);
    if (sampling.top_n_sigma > 0.0f) {
        reach_ = double(sampling.top_n_sigma) * row_.deviation();
    }
    if (!data_.empty()) {
        filter(sampling, sampling.position_after(text.size()));
    }
    if (grammar_ && !grammar_too_slow()) {
        stand_behind(sampling, text);
        if (!data_.empty()) {
            grammar_->keep_allowed(data_);
        }
        if (data_.empty()) {
            look_for_allowed(k);
            if (!data_.empty()) {
                filter(sampling, sampling.position_after(text.size()));
            }
        }
    }
    std::stable_sort(data_.begin(), data_.end(), [](const auto & a, const auto & b) { return a.logit > b.logit; });
    out.clear();
    double sum = 0.0;
    for (const llama_token_data & d : data_) {
        const float logp = (d.logit - data_.front().logit) / temperature_;
        sum += std::exp(double(logp));
        out.push_back({.token = d.id, .logp = logp});
    }
    for (candidate & c : out) {
        c.logp -= float(std::log(sum));
    }
}

} // namespace duo
