#include "lookup_cache.h"

#include <algorithm>
#include <array>
#include <filesystem>

namespace duo {

namespace {
constexpr size_t     n_static             = 2;      // tokens of the n-grams in a static cache (LLAMA_NGRAM_STATIC)
constexpr int32_t    least_seen_static    = 2;      // draft_min_sample_size_lax
constexpr int32_t    least_percent_static = 50;     // draft_min_percent_lax
constexpr std::array least_seen{4, 3, 2, 2};        // draft_min_sample_size_strict, by the n-gram's length
constexpr std::array least_percent{75, 66, 66, 66}; // draft_min_percent_strict
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
    const auto * corpus = end.size() >= n_static ? static_.find(end.last(n_static)) : nullptr;
    const auto   weight = [corpus](token_id token) -> int64_t {
        const auto * none = static_cast<const ngram_counts::next *>(nullptr);
        const auto * here = none;
        for (const auto & x : corpus != nullptr ? std::span(*corpus) : std::span<const ngram_counts::next>{}) {
            here = x.token == token ? &x : here;
        }
        return here == none ? 1 : 100 * int64_t(here->count);
    };
    const auto best_of = [](const std::vector<ngram_counts::next> & all, const auto & value, int64_t & sum) {
        const ngram_counts::next * best   = nullptr;
        int64_t                    n_best = 0;
        sum                               = 0;
        for (const auto & x : all) {
            const int64_t n = value(x);
            best            = n > n_best ? &x : best;
            n_best          = std::max(n, n_best);
            sum += x.count;
        }
        return best;
    };
    int64_t sum = 0;
    for (size_t n = std::min(end.size(), ngram_counts::n_longest); n > 0; --n) {
        if (const auto * seen = dynamic_.find(end.last(n)); seen != nullptr) {
            const auto * best = best_of(*seen, [&](const auto & x) { return x.count * weight(x.token); }, sum);
            if (sum >= least_seen[n - 1] && 100 * int64_t(best->count) >= least_percent[n - 1] * sum) {
                return {best->token, int32_t(n), best->count};
            }
        }
    }
    if (corpus != nullptr) {
        const auto * best = best_of(*corpus, [](const auto & x) { return int64_t(x.count); }, sum);
        if (sum >= least_seen_static && 100 * int64_t(best->count) >= least_percent_static * sum) {
            return {best->token, int32_t(n_static), best->count};
        }
    }
    return {};
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
