// Drafts without a model: finds earlier places where the text had the same last tokens as now, and proposes what
// followed there.
//
// Prompt lookup decoding (Saxena 2023) and LLMA (Yang et al., arXiv 2304.04487); the kinds and their parameters are
// those of llama.cpp's common/ngram-map.h. Two things differ. Where a longer key has no match, a shorter key is tried,
// so the longest match wins. A continuation that reaches the end of the text goes on with its own first tokens, so
// periodic text can be continued without end.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/messages.h"

namespace duo {

enum class ngram_kind : uint8_t {
    none,
    simple,  // ngram-simple: the last occurrence of the key
    map_k,   // ngram-map-k: the same, of a key that was seen min_hits times
    map_k4v, // ngram-map-k4v: a key seen min_hits times, up to four continuations of it
    mod,     // ngram-mod: map_k, and earlier texts (ngram_pool)
};

// Defaults: llama.cpp's for each of the three kinds (common/common.h, common_params_speculative_ngram_map).
struct ngram_params {
    ngram_kind kind     = ngram_kind::none;
    int32_t    size_n   = 12; // tokens in the longest key; values outside 1..1024 are moved to the nearer end
    int32_t    size_m   = 48; // most tokens in a proposal; above 1024: 1024; below 1: no proposals
    int32_t    min_hits = 1;  // times a key must have been seen before; below 1: 1. Not used by `simple`
};

// Which keys an index has. The default is for a text; see ngram_pool.
struct ngram_keys {
    static constexpr int32_t most_lengths = 16; // a tag has 4 bits for the length

    int32_t shortest  = 2;            // tokens in the shortest one
    int32_t n_lengths = most_lengths; // different ones, at most
};

struct ngram_proposal {
    std::vector<token_id> tokens;      // storage is reused
    int32_t               n_match = 0; // tokens in the key that matched
    int32_t               n_hits  = 0; // times seen: the continuation (map_k4v) or the key (map_k); simple: 1
};

// Keys have the lengths size_n, size_n - s, size_n - 2s, ..., none below 2 (size_n 1: only 1), s being the smallest
// step that makes them at most 16: for size_n = 12 all from 12 to 2. Short matches are right less often, which the
// planner counts by length (guess_record).
//
// Of the text and tail together, the key of length n is their last n tokens; an occurrence of it is an earlier place
// with the same n tokens (it may overlap the key) and at least one token behind them. The longest key counts that has
// min_hits occurrences. All but `map_k4v` propose what follows its last occurrence. `map_k4v` tells continuations
// apart by their first token and proposes what follows the last occurrence of each, most frequent first (ties: most
// recent); it remembers four per key, a fifth takes the place of the least frequent (ties: least recent).
class ngram_index {
  public:
    // A new text: forgets the old one.
    void begin(const ngram_params & params, std::span<const token_id> text, ngram_keys keys = {});

    // Those of begin(), within their bounds.
    [[nodiscard]] const ngram_params & params() const { return params_; }

    // The text has grown at its end. Tokens below 0 follow nothing. Cost: at most a table look-up per new token and key
    // length; key lengths above the longest match are not touched. Memory: the same bound; text that does not repeat
    // takes at most 128 bytes a token.
    void add(std::span<const token_id> text);

    // Proposals to follow text + tail, at most n_max tokens each, best first; returns how many (at most out.size()).
    // `text` is that of the last add(), or has grown since; `tail`: drafted tokens that are assumed to follow it. Cost:
    // a look-up per key length, the copying of the tokens, and a comparison per token of the tail.
    size_t propose(std::span<const token_id> text, std::span<const token_id> tail, int32_t n_max,
                   std::span<ngram_proposal> out) const;

  private:
    static constexpr size_t max_lengths = ngram_keys::most_lengths;
    static constexpr size_t max_values  = 4;

    struct sequence;

    // The place of an occurrence is the index of the token behind the key: `end`.
    struct value {
        int32_t end    = 0; // of the last occurrence
        int32_t n_seen = 0; // 0: free
    };
    using values = std::array<value, max_values>;

    struct slot {
        uint32_t tag      = 0; // 28 bits of the key's hash, 4 bits: which length
        int32_t  end      = 0; // of the last occurrence
        int32_t  n_seen   = 0; // 0: free
        int32_t  i_values = -1;
    };

    // Per key length: occurrences in the sequence and the last one's place; table: the key's slot, -1 none.
    struct match {
        int32_t n_seen = 0;
        int32_t end    = 0;
        int32_t i_slot = -1;
    };
    using matches = std::array<match, max_lengths>;

    [[nodiscard]] static uint64_t hash(uint64_t h, const sequence & seq, int32_t end, int32_t n_from, int32_t n_to);
    static void                   count(values & all, const sequence & seq, value seen);
    static void propose_at(const sequence & seq, value from, int32_t n_match, int32_t n, ngram_proposal & out);

    [[nodiscard]] size_t find(const sequence & seq, size_t i_length, int32_t end, uint64_t h) const;
    [[nodiscard]] values values_of(const sequence & seq, const match & m, int32_t length) const;
    void                 look_up(const sequence & seq, matches & out) const;
    void                 enter(const sequence & seq, int32_t end);
    int32_t              enter_key(const sequence & seq, size_t i_length, int32_t end, uint64_t h, int32_t & first);
    void                 grow();

    ngram_params                     params_;
    std::array<int32_t, max_lengths> lengths_{}; // ascending
    size_t                           n_lengths_ = 0;
    std::vector<slot>                slots_; // open addressing, a power of two of them, at most half in use
    size_t                           n_used_ = 0;
    int                              shift_  = 64; // 64 - log2(slots)
    std::vector<values>              values_;      // map_k4v: of the keys that were seen more than once
    int32_t                          n_done_ = 0;  // ends below are in the table
};

} // namespace duo
