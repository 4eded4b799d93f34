#include "lookup_cache.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <unordered_map>

namespace duo {

namespace {
constexpr size_t     n_static             = 2;      // tokens of the n-grams in a static cache (LLAMA_NGRAM_STATIC)
constexpr int32_t    least_seen_static    = 2;      // draft_min_sample_size_lax
constexpr int32_t    least_percent_static = 50;     // draft_min_percent_lax
constexpr std::array least_seen{4, 3, 2, 2};        // draft_min_sample_size_strict, by the n-gram's length
constexpr std::array least_percent{75, 66, 66, 66}; // draft_min_percent_strict
using followers = std::vector<ngram_counts::next>;

// The most frequent one, if it has this share of all. nullptr: none has.
const ngram_counts::next * majority(const followers & all, int32_t least_sum, int32_t least_percent) {
    int64_t sum = 0;
    for (const auto & x : all) {
        sum += x.count;
    }
    const auto most = std::ranges::max_element(all, {}, &ngram_counts::next::count);
    const bool is   = most != all.end() && sum >= least_sum && 100 * int64_t(most->count) >= least_percent * sum;
    return is ? &*most : nullptr;
}

// Also if each count is weighed by that of the corpus.
bool weighs_most(const ngram_counts::next & most, const followers & all, const followers * corpus) {
    if (corpus == nullptr) {
        return true;
    }
    std::unordered_map<token_id, int64_t> weights;
    for (const auto & x : *corpus) {
        weights[x.token] = 100 * int64_t(x.count);
    }
    const auto weighed = [&weights](const ngram_counts::next & x) {
        const auto here = weights.find(x.token);
        return x.count * (here == weights.end() ? int64_t(1) : here->second);
    };
    const int64_t n = weighed(most);
    return std::ranges::none_of(all, [&](const auto & x) { return x.token != most.token && weighed(x) > n; });
}
} // namespace

lookup_cache::lookup_cache(const std::string & static_file, const std::string & dynamic_file, int32_t n_vocab)
    : grows_(!dynamic_file.empty()) {
    if (!static_file.empty()) {
        static_.load(static_file, n_vocab);
    }
    if (std::error_code unknown; grows_ && std::filesystem::exists(dynamic_file, unknown)) {
        dynamic_.load(dynamic_file, n_vocab);
    }
}

// The longest n-gram counts after which one token is clearly the most frequent. Counts of the static cache weigh those
// of the dynamic one.
lookup_cache::choice lookup_cache::next(std::span<const token_id> end) const {
    const followers * corpus = end.size() >= n_static ? static_.find(end.last(n_static)) : nullptr;
    for (size_t n = std::min(end.size(), ngram_counts::n_longest); n > 0; --n) {
        const followers * seen = dynamic_.find(end.last(n));
        const auto *      most = seen == nullptr ? nullptr : majority(*seen, least_seen[n - 1], least_percent[n - 1]);
        if (most != nullptr && weighs_most(*most, *seen, corpus)) {
            return {most->token, int32_t(n), most->count};
        }
    }
    const auto * most = corpus == nullptr ? nullptr : majority(*corpus, least_seen_static, least_percent_static);
    return most == nullptr ? choice{} : choice{most->token, int32_t(n_static), most->count};
}

bool lookup_cache::propose(std::span<const token_id> text, std::span<const token_id> tail, int32_t n_max,
                           ngram_proposal & out) const {
    const size_t n_tail = std::min(tail.size(), ngram_counts::n_longest);
    const size_t n_text = std::min(text.size(), ngram_counts::n_longest - n_tail);
    end_.assign(text.end() - ptrdiff_t(n_text), text.end());
    end_.insert(end_.end(), tail.end() - ptrdiff_t(n_tail), tail.end());
    out.tokens.clear();
    while (int32_t(out.tokens.size()) < n_max) {
        const choice c = next(std::span(end_).last(std::min(end_.size(), ngram_counts::n_longest)));
        if (c.token == no_token) {
            break;
        }
        if (out.tokens.empty()) {
            out.n_match = c.n_match;
            out.n_hits  = c.count;
        }
        out.tokens.push_back(c.token);
        end_.push_back(c.token);
    }
    return !out.tokens.empty();
}

void lookup_cache::add(std::span<const token_id> text, size_t n_known) noexcept {
    try {
        if (grows_) {
            dynamic_.add(text, n_known);
        }
    } catch (...) {
        // there is no memory for it, and the texts do not need it
    }
}

} // namespace duo
