// How a model with a recurrent state takes back rows. Its memory has one state for each sequence, not one for each
// token (llama-memory-recurrent.cpp).
//
// Some architectures keep snapshots of the state after the last rows of a pass (llama_context_params.n_rs_seq). The
// state can go back to one of them, but only once until the next pass.
//
// With others, a spare sequence holds the state from before a pass that verifies. libllama copies a state that two
// sequences share when one of them goes on, inside the graph, so this takes no pass and no transfer. After a wrong
// guess the spare sequence's state is taken, and the rows that were right are evaluated again.
//
// Marks are states in main memory, from places in a prompt to which later texts may go back (LLAMA_STATE_SEQ_FLAGS_
// PARTIAL_ONLY: without the cells of layers that attend, which stay in the cache).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <llama.h>

#include "model/token_model.h"

namespace duo {

// Of one sequence. Belongs to the model's thread.
class kept_state {
  public:
    kept_state() = default;
    // spare: a sequence that nobody else uses; < 0: none. n_marks: the most that are kept. mark_step: tokens between
    // two of them, at least.
    kept_state(llama_context * context, llama_seq_id own, llama_seq_id spare, int32_t n_marks, int32_t mark_step)
        : context_(context), memory_(llama_get_memory(context)), n_snapshots_(int32_t(llama_n_rs_seq(context))),
          own_(own), spare_(spare), n_marks_(size_t(n_marks)), mark_step_(mark_step) {}

    [[nodiscard]] undo_kind kind() const { return n_snapshots_ > 0 ? undo_kind::snapshots : undo_kind::copy; }
    [[nodiscard]] int32_t   n_snapshots() const { return n_snapshots_; }
    [[nodiscard]] bool      goes_back() const { return n_snapshots_ > 0 || spare_ >= 0; } // after a guess

    // A pass begins, perhaps without this sequence: padding rows go. taken_back: some of its rows may be.
    void before_pass(bool taken_back);
    // The pass had so many rows of this sequence in its last ubatch, and n_padding of them only made it as wide as
    // those of other texts. They go together with what is rolled back, because rollbacks do not stack.
    void after_pass(int32_t n_rows, int32_t n_padding = 0);

    // Positions of the sequence, without padding rows.
    [[nodiscard]] int32_t n_held() const { return n_cached() - n_padding_; }

    // Forgets positions >= pos. False: that state is not known, and nothing has changed.
    bool rollback(int32_t pos);
    // The same, but to an earlier position if it must be. Returns the positions that are left.
    int32_t take_back(int32_t pos);

    // Keeps the state as it is now, unless it is too near to the last one that is kept. The oldest of too many goes.
    void                  mark();
    [[nodiscard]] int64_t mark_bytes() const;

    // The marks as bytes, to be saved behind the sequence itself; takes those of another sequence from the end of
    // `saved`, and returns what is before them. Throws duo::error if there are none.
    [[nodiscard]] std::string marks() const;
    std::span<const char>     set_marks(std::span<const char> saved);

    // Padding rows go, or the memory would be saved with them. Throws duo::error.
    void drop_padding();
    // Another state was put in the place of this one.
    void forget();

  private:
    struct state {
        int32_t     pos = 0; // the next one
        std::string saved;
    };

    bool                  to_mark(int32_t pos);
    void                  forget_copies();
    void                  drop_oldest();
    [[nodiscard]] int32_t n_marked(int32_t pos) const; // of the last mark that is not behind pos; 0: none
    [[nodiscard]] int32_t n_cached() const { return llama_memory_seq_pos_max(memory_, own_) + 1; }

    llama_context * context_     = nullptr;
    llama_memory_t  memory_      = nullptr;
    int32_t         n_snapshots_ = 0;
    llama_seq_id    own_         = 0;
    llama_seq_id    spare_       = -1;
    int32_t         n_spare_     = -1; // positions that the spare sequence holds; < 0: it is not in use
    int32_t         n_back_      = 0;  // rows that the snapshots reach back
    int32_t         n_padding_   = 0;  // last rows that are not text
    size_t          n_marks_     = 0;  // the most that are kept
    int32_t         mark_step_   = 0;

    std::vector<state> marks_; // by position
};

} // namespace duo
