#include "row_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace duo {

row_sampler::row_sampler(const model_weights & w, const model_decoder & decoder) : weights_(w), decoder_(decoder) {
    limit_vocab(w.n_vocab());
}

void row_sampler::limit_vocab(int32_t n) {
    make_samplers(weights_.vocab(), std::min(n, weights_.n_vocab()));
}

void row_sampler::speak(const llama_vocab * target, const translation & words) {
    words_ = &words;
    make_samplers(target, words.n_target());
}

void row_sampler::make_samplers(const llama_vocab * vocab, int32_t n_vocab) {
    samplers_.clear();
    for (int32_t i = 0; i < weights_.options.n_parallel; ++i) {
        samplers_.push_back(std::make_unique<sampler>(vocab, n_vocab, weights_.is_draft));
    }
}

// Texts whose rows alternate would undo each other's setup. A draft's branches belong to no text, so its samplers are
// told apart by what they are set up for.
sampler & row_sampler::sampler_of(int32_t i_row, const sampling_params & sampling) {
    if (!weights_.is_draft) {
        const row_batch & batch = decoder_.batch();
        return *samplers_[size_t(decoder_.context().text_of(batch.branch(batch.find(i_row))))];
    }
    auto found = std::find_if(samplers_.begin(), samplers_.end(),
                              [&sampling](const auto & s) { return s->stands_for(sampling); });
    found -= found == samplers_.end() ? 1 : 0;
    std::rotate(samplers_.begin(), found, found + 1);
    return *samplers_.front();
}

int64_t row_sampler::n_setups() const {
    return std::accumulate(samplers_.begin(), samplers_.end(), int64_t(0),
                           [](int64_t n, const auto & s) { return n + s->n_setups(); });
}

int64_t row_sampler::n_sorted() const {
    return std::accumulate(samplers_.begin(), samplers_.end(), int64_t(0),
                           [](int64_t n, const auto & s) { return n + s->n_sorted(); });
}

std::span<float> row_sampler::logits(int32_t i_row, int32_t level) const {
    const int32_t i   = decoder_.batch().find(i_row);
    float *       row = i >= 0 ? llama_get_logits_ith(decoder_.context().get(), i + level) : nullptr;
    if (row == nullptr) {
        throw error("row " + std::to_string(i_row) + " of the last pass over " + weights_.options.path +
                    " has no logits");
    }
    return {row, size_t(weights_.n_vocab())};
}

int32_t row_sampler::level_of(int32_t i_row, std::span<const token_id> text) const {
    const row_batch & batch = decoder_.batch();
    const int32_t     i     = batch.find(i_row);
    return weights_.is_block() && i >= 0 ? int32_t(text.size()) + weights_.head->n_known - batch.pos(i) : 0;
}

float * row_sampler::scores(int32_t i_row, int32_t level) {
    const std::span<float> row = logits(i_row, level);
    if (words_ == nullptr) {
        return row.data();
    }
    translated_.assign(size_t(words_->n_target()), -std::numeric_limits<float>::infinity());
    for (size_t t = 0; t < row.size(); ++t) {
        if (const token_id other = words_->write(token_id(t)); other != no_token) {
            float & score = translated_[size_t(other)];
            score         = row[t] <= score ? score : row[t]; // NaN stays, and is noticed
        }
    }
    return translated_.data();
}

int32_t row_sampler::candidates(int32_t i_row, const sampling_params & sampling, std::span<const token_id> text,
                                std::span<candidate> out) {
    float * const row = scores(i_row, level_of(i_row, text));
    const int32_t n   = sampler_of(i_row, sampling).candidates(row, sampling, text, out);
    check_numbers(row, n == 0 ? no_token : out[0].token);
    return n;
}

void row_sampler::chances(int32_t i_row, const sampling_params & sampling, std::span<const token_id> text,
                          std::vector<candidate> & out) {
    float * const row = scores(i_row, level_of(i_row, text));
    sampler_of(i_row, sampling).chances(row, sampling, text, out);
    check_numbers(row, out.empty() ? no_token : out.front().token);
}

std::span<float> row_sampler::row_logits(int32_t i_row, const sampling_params * grammar_of,
                                         std::span<const token_id> text) {
    const std::span<float> row = logits(i_row, level_of(i_row, text));
    if (grammar_of != nullptr) {
        sampler_of(i_row, *grammar_of).keep_allowed(row.data(), *grammar_of, text);
    }
    return row;
}

float row_sampler::logprobs(int32_t i_row, token_id token, std::span<candidate> out) {
    return samplers_.front()->logprobs(scores(i_row, 0), token, out);
}

// A row with NaN leaves no candidate, or one that is not a number. best: the first candidate.
void row_sampler::check_numbers(const float * logits, token_id best) const {
    if (best != no_token && std::isfinite(logits[best])) {
        return;
    }
    const model_options & opt = weights_.options;
    if (std::any_of(logits, logits + (words_ == nullptr ? weights_.n_vocab() : words_->n_target()),
                    [](float x) { return std::isnan(x); })) {
        const bool changed = !opt.loras.empty() || !opt.control_vectors.empty();
        throw nan_error(opt.path + " computes NaN instead of numbers; " +
                        (changed ? "try it without its adapters and control vectors"
                                 : "its weights are corrupt, download it again"));
    }
}

} // namespace duo
