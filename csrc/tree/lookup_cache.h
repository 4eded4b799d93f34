// Guesses from n-gram caches, as llama.cpp's lookup decoding makes them: a static one of a large corpus, and a dynamic
// one of earlier texts, which grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/messages.h"
#include "ngram_counts.h"
#include "ngram_index.h"

namespace duo {

// For one thread. The rules are those of common_ngram_cache_draft (common/ngram-cache.cpp). The cache of the text
// itself (its `context`) is missing here: that is ngram_index.
class lookup_cache {
  public:
    // Files; an empty name: none. The dynamic one may be missing: then it is empty. Throws duo::error.
    lookup_cache(const std::string & static_file, const std::string & dynamic_file, int32_t n_vocab);

    // At most n_max tokens to follow text + tail. n_match: tokens of the n-gram that the first one came after. False:
    // none is probable enough.
    bool propose(std::span<const token_id> text, std::span<const token_id> tail, int32_t n_max,
                 ngram_proposal & out) const;

    // A text has ended, of which the first n_known tokens are part of an earlier one. Only with a dynamic file.
    void add(std::span<const token_id> text, size_t n_known) noexcept;

    // The dynamic file as it is now, under this name. Throws duo::error.
    void save(const std::string & path) const { dynamic_.save(path); }

    [[nodiscard]] const ngram_counts & fixed() const { return static_; }
    [[nodiscard]] const ngram_counts & growing() const { return dynamic_; }

  private:
    struct choice {
        token_id token   = no_token;
        int32_t  n_match = 0;
        int32_t  count   = 0;
    };

    [[nodiscard]] choice next(std::span<const token_id> end) const;

    ngram_counts                  static_;
    ngram_counts                  dynamic_;
    bool                          grows_;
    mutable std::vector<token_id> end_; // scratch
};

} // namespace duo
