// How often tokens came after short n-grams. Its files are those of llama.cpp's lookup decoding
// (common/ngram-cache.cpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/messages.h"

namespace duo {

// For one thread.
class ngram_counts {
  public:
    static constexpr size_t n_longest    = 4;               // tokens (LLAMA_NGRAM_MAX)
    static constexpr size_t n_grams_most = size_t(1) << 21; // that add() keeps; then those that were seen once go

    struct next {
        token_id token = no_token;
        int32_t  count = 0;
    };

    // Counts which tokens come after 1 to n_longest others, from token n_known of the text on. Of a long text only the
    // last ones count.
    void add(std::span<const token_id> text, size_t n_known);

    // What came after these tokens, of which there are n_longest at most; null: nothing.
    [[nodiscard]] const std::vector<next> * find(std::span<const token_id> tokens) const;

    // Adds what the file has. Throws duo::error: it is no such file, or has tokens that the vocabulary does not have.
    void load(const std::string & path, int32_t n_vocab);
    // Throws duo::error: the file cannot be written.
    void save(const std::string & path) const;

    [[nodiscard]] size_t size() const { return all_.size(); } // n-grams

  private:
    using ngram = std::array<token_id, n_longest>; // shorter ones have -1 behind their tokens (LLAMA_TOKEN_NULL)
    struct hash {
        size_t operator()(const ngram & x) const;
    };

    static ngram key_of(std::span<const token_id> tokens);
    void         count(const ngram & key, token_id token, int32_t n);
    void         forget_rare();

    std::unordered_map<ngram, std::vector<next>, hash> all_;
};

} // namespace duo
