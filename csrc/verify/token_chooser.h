// Chooses the token that follows a row: asks the caller's hook, then the rule of acceptance.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "model/acceptance.h"
#include "model/token_model.h"
#include "verify_text.h"

namespace duo {

// Belongs to the verify worker's thread. The model's last pass has the rows that it is asked about.
class token_chooser {
  public:
    // The model must outlive it.
    explicit token_chooser(token_model & model) : model_(model) {}

    // Before the walk of a text. i_root: the root's row in the pass.
    void begin_walk(verify_text & text, int32_t i_root);
    // The token that follows row i_row. Nothing: the grammar is complete and the text has no end token to choose, or
    // the caller's hook ends the text. Throws duo::error if no token is left.
    std::optional<token_id> choose(verify_text & text, int32_t i_row);

  private:
    std::optional<token_id> chosen(verify_text & text, int32_t i_row);

    token_model &            model_;
    acceptance               acceptance_;
    std::deque<token_id>     chosen_;     // of a block: the walk's next tokens
    std::vector<candidate>   chances_;    // scratch: what the rule of acceptance chooses from
    std::vector<block_level> levels_;     // scratch of begin_walk()
    std::vector<token_id>    path_;       // scratch of begin_walk()
    std::vector<float>       own_logits_; // scratch: a row before a hook changed it
};

} // namespace duo
