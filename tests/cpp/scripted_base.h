// What all scripted models have in common: how they behave, their language, their sizes.
#pragma once

#include <string>

#include "model/token_model.h"
#include "scripted_language.h"

namespace duo_test {

// Its rows have the ids first_picture_id + 1000 k + row.
struct scripted_picture : duo::picture {
    explicit scripted_picture(int32_t n) : n_rows(n) {}
    [[nodiscard]] int32_t n_pos() const override { return n_rows; }

    const int32_t n_rows;
};

// The row of a picture that an id stands for. 0: its first one, or a token.
inline int32_t row_of_picture(token_id id) {
    return duo::is_picture(id) ? (id - duo::first_picture_id) % 1000 : 0;
}

struct behaviour {
    language lang{};
    bool     has_features = false; // a target that a draft head reads
    int32_t  n_levels     = 1;     // of a head: it guesses in blocks
    int32_t  n_ctx        = 512;
    int32_t  n_batch      = 64;
    int32_t  n_branch     = 16;
    int32_t  n_spare      = 64;  // cells beside the context
    double   second       = 0.0; // where a draft disagrees: how often its second candidate is the target's token
    double   agree        = 1.0;
    uint64_t accent       = 0; // which tokens a draft gets wrong
    size_t   dull_until   = 0; // all of them, in texts shorter than this
    int32_t  delay_us     = 0; // sleeps at random up to this in each decode()
    int32_t  pass_us      = 0; // and always this long
    uint64_t delay_seed   = 1;
    bool     can_rollback = true;
    bool     windows      = true; // a draft that may leave out the middle of a prompt
    bool     sinks        = true; // what has read a part of a text has read its first tokens; not so after a shift
    bool     shifts       = true; // cells can be shifted; otherwise a text is read again without its middle
    // A recurrent state: how it goes back, how far, and whether a pass over one row is dropped as it would be if a row
    // had been added for its company.
    duo::undo_kind undo         = duo::undo_kind::cells;
    int32_t        n_undo       = 8;
    bool           drops_one    = false;
    bool           marks        = false; // its states in a prompt can be marked
    bool           is_target    = false; // passes of several texts are checked
    int32_t        n_together   = -1;    // guesses of each text in company; < 0: a target's pass has one text
    bool           heeds_stop   = true;
    int64_t        throw_at     = -1; // this decode() throws, counted from 0, half of its rows in the cache
    int64_t        throw_choice = -1; // this candidates() throws
    token_id       poison       = -1; // decode() throws if a text begins with it
    int64_t        hang_at      = -1; // this decode() does not return before release(), or `stop` if it heeds that
};

class scripted_base : public duo::token_model, protected duo::head_states {
  public:
    explicit scripted_base(const behaviour & b) : b_(b) {}

    const duo::model_facts & facts() const override { return facts_; }

    bool        is_end(token_id token) const override { return token == 0; }
    std::string piece(token_id token) const override { return language::piece(token); }

    duo::head_states & states() override { return *this; }

  protected:
    const behaviour  b_;
    duo::model_facts facts_{.n_ctx    = b_.n_ctx,
                            .n_batch  = b_.n_batch,
                            .n_branch = b_.n_branch,
                            .n_cells  = b_.n_ctx + b_.n_spare,
                            .n_vocab  = b_.lang.n_vocab};
};

} // namespace duo_test
