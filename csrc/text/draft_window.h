// Which tokens of a text a draft reads: the first ones and the last ones, without what is between them.
//
// The cache holds these tokens at consecutive positions (StreamingLLM, arXiv 2309.17453): the position of a token in
// the cache is its place among the tokens that were read. So no token is further away from another than in a text that
// the draft was trained on. The first tokens stay, because attention puts what it does not need on them (attention
// sinks).
#pragma once

#include <algorithm>
#include <cstdint>

namespace duo {

constexpr int32_t n_window_auto = -1; // the planner's choice; a draft that is told so reads everything
constexpr int32_t n_window_all  = 0;
constexpr int32_t n_window_some = 256; // the choice where prices are not known

// What is left out of a text, for good: later tokens of the text are all read.
struct draft_window {
    static constexpr int32_t n_sink = 16; // first tokens that are always read

    int32_t n_first    = 0; // tokens before those left out; 0 if none are
    int32_t n_left_out = 0;

    // Tokens up to the first one behind those left out.
    [[nodiscard]] int32_t begin_of_rest() const { return n_first + n_left_out; }
    // Rows of the first n tokens of the text.
    [[nodiscard]] int32_t n_rows(int32_t n) const { return n <= n_first ? n : std::max(n_first, n - n_left_out); }
    // The row, which is its position in the cache, of the token at position `pos` of the text, which is not left out.
    [[nodiscard]] int32_t row_of(int32_t pos) const { return pos < n_first ? pos : pos - n_left_out; }
    [[nodiscard]] int32_t pos_of(int32_t row) const { return row < n_first ? row : row + n_left_out; }
};

// What a draft does to begin with a text.
struct draft_reading {
    draft_window window;
    int32_t      n_kept = 0; // leading rows of its cache that stay
    int32_t      n_rows = 0; // that are evaluated then, up to the text's last token

    // had: what the cache holds, or has left out, of an earlier text, with which this one shares the first n_same
    // tokens. n_text: tokens; more than n_same. n_window: last tokens that are wanted; n_window_all or n_window_auto:
    // all. What the cache holds stays if it makes the reading no longer.
    [[nodiscard]] static draft_reading of(const draft_window & had, int32_t n_same, int32_t n_text, int32_t n_window);
};

} // namespace duo
