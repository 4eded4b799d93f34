// Filters over candidates, in place of libllama's. Its XTC has a random state, its typical-p gives NaN after its
// top-n-sigma, and its top-n-sigma needs the whole vocabulary as candidates.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

#include "text/sampling.h"

namespace duo {

// For one thread. A candidate has a `logit`; candidates are sorted, best first, and have finite logits. What a filter
// leaves is sorted and not empty. The results are functions of the arguments.
class candidate_filters {
  public:
    // Top-n-sigma (Tang et al., arXiv 2411.07641): keeps logits within `reach` (n standard deviations) of the best one.
    template <typename T> static void keep_within(std::vector<T> & all, double reach) {
        const double least = double(all.front().logit) - reach;
        const auto   below = [least](const T & c) { return double(c.logit) < least; };
        all.erase(std::find_if(all.begin() + 1, all.end(), below), all.end());
    }

    // Locally typical sampling (Meister et al., arXiv 2202.00666): keeps the candidates whose surprise is nearest to
    // the entropy, until they sum to more than p. llama.cpp: llama_sampler_init_typical.
    template <typename T> void keep_typical(std::vector<T> & all, float p) {
        const double entropy = entropy_of(all);
        gap_.clear();
        for (const double x : p_) { // a probability of 0 has an infinite surprise
            gap_.push_back(std::abs(-std::log(x) - entropy));
        }
        order_.resize(all.size());
        std::iota(order_.begin(), order_.end(), size_t(0));
        std::sort(order_.begin(), order_.end(),
                  [this](size_t a, size_t b) { return gap_[a] < gap_[b] || (gap_[a] == gap_[b] && a < b); });
        double sum    = 0.0;
        size_t n_kept = 0;
        while (n_kept < order_.size() && sum <= double(p)) {
            sum += p_[order_[n_kept++]];
        }
        std::sort(order_.begin(), order_.begin() + ptrdiff_t(n_kept));
        for (size_t i = 0; i < n_kept; ++i) {
            all[i] = all[order_[i]];
        }
        all.erase(all.begin() + ptrdiff_t(n_kept), all.end());
    }

    // XTC, "exclude top choices": of the candidates with a probability of at least `threshold`, only the last one
    // stays. llama.cpp: llama_sampler_init_xtc.
    template <typename T> void exclude_top_choices(std::vector<T> & all, float threshold) {
        softmax(all);
        const auto below = [threshold](double p) { return p < double(threshold); };
        const auto n_top = std::find_if(p_.begin(), p_.end(), below) - p_.begin();
        all.erase(all.begin(), all.begin() + std::max<ptrdiff_t>(n_top - 1, 0));
    }

    // The temperature for these candidates: it rises with their entropy (kalomaze's dynamic
    // temperature; llama.cpp: llama_sampler_init_temp_ext). Never below 1e-6, so that a logit can be divided by it.
    template <typename T> float temperature(const std::vector<T> & all, const sampling_params & s) {
        if (s.dynatemp_range <= 0.0f) {
            return s.temp;
        }
        double warmth = 0.0;
        if (all.size() > 1) {
            warmth = std::pow(entropy_of(all) / std::log(double(all.size())), double(s.dynatemp_exponent));
        }
        const double least = std::max(0.0, double(s.temp) - double(s.dynatemp_range));
        const double most  = double(s.temp) + double(s.dynatemp_range);
        return float(std::max(1e-6, least + (most - least) * warmth));
    }

  private:
    template <typename T> void softmax(const std::vector<T> & all) {
        double sum = 0.0;
        p_.clear();
        for (const T & c : all) {
            p_.push_back(std::exp(double(c.logit) - double(all.front().logit)));
            sum += p_.back();
        }
        for (double & p : p_) {
            p /= sum;
        }
    }

    // In nats; p_ has the probabilities.
    template <typename T> double entropy_of(const std::vector<T> & all) {
        softmax(all);
        return std::accumulate(p_.begin(), p_.end(), 0.0,
                               [](double sum, double p) { return p > 0.0 ? sum - p * std::log(p) : sum; });
    }

    std::vector<double> p_;     // scratch: probabilities
    std::vector<double> gap_;   // scratch: distance of the surprise from the entropy
    std::vector<size_t> order_; // scratch: indices of candidates
};

} // namespace duo
