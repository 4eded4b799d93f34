// Facts about a model that do not change after loading.
#pragma once

#include <cstdint>
#include <limits>

namespace duo {

// How a model takes back rows that it has evaluated.
enum class undo_kind : uint8_t {
    cells,     // each row for itself: rollback() reaches any position, and fork() as well
    snapshots, // a recurrent state: rollback() reaches the last n_undo rows of the last pass, and only once
    copy,      // a recurrent state: the last pass as a whole, so what was right in it is evaluated again
};

struct model_facts {
    int32_t   n_ctx      = 0; // positions
    int32_t   n_batch    = 0; // rows in one decode()
    int32_t   n_branch   = 0; // branches, from 0
    int32_t   n_cells    = 0; // rows that all branches together can have cached
    int32_t   n_vocab    = 0; // token ids it can read
    int32_t   n_proposed = 0; // of these, as many as it computes logits for
    undo_kind undo       = undo_kind::cells;
    int32_t   n_undo     = std::numeric_limits<int32_t>::max(); // guesses that can be taken back after a pass

    // A target's hidden states that a draft head reads (EAGLE-3, MTP): floats of a row; 0: none are kept.
    int32_t n_features = 0;
    // A draft head's: floats of a row of the target's hidden states that it reads; 0: it is no head, and reads none.
    int32_t n_inputs = 0;
    int32_t n_state  = 0; // floats of a state
    // > 1: a head that guesses in blocks. A row with an output gives candidates for so many positions at once, each
    // without regard to the tokens before it, and no row below the text's last one can be evaluated.
    int32_t n_levels = 1;
};

} // namespace duo
