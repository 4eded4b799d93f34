// A place in the target's cache, and the text that is written there.
#pragma once

#include <cstdint>
#include <vector>

#include "draft_contact.h"
#include "kept_texts.h"
#include "verify_text.h"

namespace duo {

// The text waits until others have ended. If its context was shifted, only it can go on with its cells: they are saved.
struct parking {
    bool             waits = false;
    kept_texts::text cells{};
};

struct told_orders {
    int32_t n_ahead = 0;     // levels
    bool    spared  = false; // none, because n-grams promise more (wish_rule::spares)

    uint32_t n_quiet = 0; // verdicts for which the draft was not woken
};

constexpr size_t n_short = 16; // missing rows of a text that is being written

// Belongs to the verify worker's thread.
struct verify_slot {
    verify_slot(const token_model & model, int32_t number, int32_t n_branches)
        : index(number), first_branch(number * n_branches), text(model), message_slot(number) {}

    const int32_t index;        // its number
    const int32_t first_branch; // of its branches in the cache; a text's best path is in this one

    verify_text           text;
    std::vector<token_id> cached;            // tokens whose positions the first branch holds
    lora_scales           scales;            // with which they were evaluated
    uint64_t              n_begun = 0;       // its text was the n-th to begin
    uint64_t              n_turn  = 0;       // its last pass was the n-th over several texts
    parking               parked;            // the cache is full
    bool                  for_draft = false; // the text may have a draft

    // Its draft.
    draft_contact draft;
    int32_t       message_slot;    // what messages to and from the draft name
    int32_t       end_owed   = -1; // slot of a text whose end its draft has not yet been told; -1: none
    int64_t       read_by_us = 0;  // while its draft reads, the text waits for it until then
    told_orders   told;            // what the draft was told to make

    // In the pass that is being made.
    size_t n_read   = 0;   // rows of the prompt, without a verification; 0: it verifies
    size_t i_first  = 0;   // its first row
    size_t i_root   = 0;   // the root's row
    size_t n_before = 0;   // tokens that the cache held before
    size_t n_good   = 0;   // leading tokens of the cache that can be kept after a spoiled row
    double expected = 1.0; // tokens, by the planner

    [[nodiscard]] size_t n_missing() const { return text.context().tokens().size() - cached.size(); }
    // Its context was shifted, and the next pass will move the keys.
    [[nodiscard]] bool keys_move() const {
        return text.context().n_left_out() > 0 && !text.us_since_verdict(0).has_value();
    }
    [[nodiscard]] bool drafting() const { return text.active() && draft.drafting(); }
    [[nodiscard]] bool draft_may_grow() const { return drafting() && !draft.late() && !text.guesses().paused(); }
};

} // namespace duo
