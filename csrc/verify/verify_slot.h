// A place in the target's cache, and the text that is written there.
#pragma once

#include <cstdint>
#include <vector>

#include "text/draft_window.h"
#include "verify_text.h"

namespace duo {

// Belongs to the verify worker's thread.
struct verify_slot {
    verify_slot(const token_model & model, int32_t number, int32_t n_branches)
        : index(number), first_branch(number * n_branches), text(model) {}

    const int32_t index;        // messages to and from a draft in this process name it
    const int32_t first_branch; // of its branches in the cache; a text's best path is in this one

    verify_text           text;
    std::vector<token_id> cached;             // tokens whose positions the first branch holds
    std::vector<token_id> draft_read;         // what the draft's cache holds of the last text, or has left out
    draft_window          window;             // which of these it has left out
    int64_t               reading_us = 0;     // that its draft should take to read what it was told of the text
    int32_t               end_owed   = -1;    // line of a text whose end its draft has not yet been told; -1: none
    uint32_t              n_quiet    = 0;     // verdicts for which the draft was not woken
    int32_t               n_ahead    = 0;     // levels that the draft was told to make
    uint64_t              n_begun    = 0;     // its text was the n-th to begin
    bool                  parked     = false; // the cache is full: the text waits until others have ended
    uint64_t              n_turn     = 0;     // its last pass was the n-th over several texts

    // In the pass that is being made.
    size_t n_read   = 0;   // rows of the prompt, without a verification; 0: it verifies
    size_t i_first  = 0;   // its first row
    size_t i_root   = 0;   // the root's row
    size_t n_before = 0;   // tokens that the cache held before
    size_t n_good   = 0;   // see finish_unless_spoiled(): leading tokens of the cache that can be kept
    double expected = 1.0; // tokens, by the planner

    [[nodiscard]] size_t n_missing() const { return text.tokens().size() - cached.size(); }
};

} // namespace duo
