// The target's cache: what each of its places holds of which text, and what is dropped when it is full.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kept_texts.h"
#include "model/token_model.h"
#include "verify_slot.h"

namespace duo {

// Belongs to the verify worker's thread.
class target_cache {
  public:
    // The model must outlive it. Its branches are divided among n_slots texts. n_kept_bytes: of kept_texts. for_head: a
    // draft head needs the hidden states of a text's last old row once more when a text goes on.
    target_cache(token_model & model, size_t n_slots, int64_t n_kept_bytes, bool for_head);

    [[nodiscard]] std::vector<verify_slot> &       slots() { return slots_; }
    [[nodiscard]] const std::vector<verify_slot> & slots() const { return slots_; }
    [[nodiscard]] int32_t                          n_branches() const { return n_branches_; } // of each slot
    [[nodiscard]] const kept_texts &               kept() const { return kept_; }
    // Tokens that it has room for beside what all slots hold.
    [[nodiscard]] size_t n_free() const;

    // ---- a text's begin and end

    // For a text that begins: the wanted slot, if it is free. What is kept of the text in RAM goes into the place of
    // the text that is missed least, and so does a text that is not to use the cache.
    verify_slot & choose_slot(const request & req);
    // The free slot whose cache has the longest beginning of the text, computed with these scales; of equal ones
    // the one used least recently.
    verify_slot & nearest_slot(std::span<const token_id> tokens, const lora_scales & scales);
    // The free slot that was used least recently; with_cells: of those whose cells another text could have. Null: there
    // is none.
    verify_slot * oldest_slot(bool with_cells = false);
    // The slot keeps what it has of the text that begins there, or gets what is kept in RAM. Throws duo::error if the
    // cache cannot be cleared.
    void keep_beginning(verify_slot & s);
    // The text ends: guesses of its last pass that were not accepted go.
    void forget_rejected(verify_slot & s) noexcept;

    // The slot counts as used now.
    void touch(verify_slot & s) { s.n_begun = ++n_begun_; }

    // ---- a pass

    // The next n_read tokens of the prompt were evaluated; or the whole text and the best path of the tree.
    void on_read(verify_slot & s);
    void on_verified(verify_slot & s);
    // Keeps the text's first n_kept tokens. Those that must be evaluated again as well are at most n_again. Throws
    // duo::error.
    void trim(verify_slot & s, size_t n_kept, size_t n_again);
    // Goes back to at most n_kept tokens, in all branches. Throws duo::error.
    void go_back(verify_slot & s, size_t n_kept);
    // Empties the slot's branches, whatever they hold.
    void clear(verify_slot & s) noexcept;
    // A pass over one row may leave nothing of it (token_model::n_held).
    void drop_unheld(verify_slot & s);
    // Guesses that the next pass may verify.
    [[nodiscard]] int32_t n_room(const verify_slot & s) const;

    // ---- room

    // Frees what is kept of ended texts, the oldest first, until n more rows fit. False: there is no more to free.
    bool make_room(size_t n_rows);
    // Before the slot is emptied or cut: keeps its text in RAM.
    void save_to_ram(verify_slot & s) noexcept;
    // A text begins or goes on: the slot gets what is kept of it in RAM. Texts that are written keep their cells.
    void restore_from_ram(verify_slot & s) noexcept;

  private:
    const kept_texts::text * kept_beyond(const verify_slot & s, std::span<const token_id> tokens,
                                         const lora_scales & scales);
    void                     cut(verify_slot & s);
    void                     take_back(verify_slot & s, size_t n_kept);

    token_model &            model_;
    const int32_t            n_branches_;
    const bool               for_head_;
    std::vector<verify_slot> slots_;
    kept_texts               kept_;
    uint64_t                 n_begun_ = 0;
};

} // namespace duo
