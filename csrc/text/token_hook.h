// A caller's function that sees every row of logits before the target chooses from it.
#pragma once

#include <span>

#include "base/messages.h"

namespace duo {

// Called in the target's thread, once for each token of a text, in order, in every mode: only for rows that the walk
// reaches, and never by the draft.
class token_hook {
  public:
    virtual ~token_hook() = default;

    // text: all tokens up to the row. logits: the target's, [n_vocab]; what is written there is what the target chooses
    // from. False: the text ends here, without another token. Throws duo::error.
    virtual bool on_row(std::span<const token_id> text, std::span<float> logits) = 0;

    // The grammar allows none of the tokens that on_row() has left. True: reconsider() shall see only those that it
    // does allow, which takes a look at the whole vocabulary.
    virtual bool refused() { return false; }
    // The same row again, after refused(); forbidden tokens have -inf if somebody wanted that. Throws duo::error.
    virtual void reconsider(std::span<const token_id> /*text*/, std::span<float> /*logits*/) {}
};

} // namespace duo
