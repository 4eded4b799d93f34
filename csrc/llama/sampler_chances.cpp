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
    const size_t n_text = sampling.position_after(text.size());
    look_for_kept(sampling, n_text, true);
    const size_t k = bound_.n_most;
    data_.resize(std::min(data_.size(), k));
    if (!data_.empty()) {
        filter(sampling, n_text);
    }
    if (grammar_ && !grammar_too_slow()) {
        stand_behind(sampling, text);
        if (!data_.empty()) {
            grammar_->keep_allowed(data_);
        }
        if (data_.empty()) {
            look_for_allowed(k);
            if (!data_.empty()) {
                filter(sampling, n_text);
            }
        }
    }
    out.clear();
    double sum = 0.0;
    for (const llama_token_data & d : data_) {
        const float logp = (d.logit - data_.front().logit) / temperature_;
        sum += std::exp(double(logp));
        out.push_back({.token = d.id, .logp = logp});
    }
    const auto norm = float(std::log(sum));
    for (candidate & c : out) {
        c.logp -= norm;
    }
}

} // namespace duo
