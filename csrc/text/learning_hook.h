// A hook that learns from each token that was chosen, before it sees the next row.
#pragma once

#include "token_hook.h"

namespace duo {

// One text. Belongs to the target's thread. A draft only guesses the tokens before a row, so it has no such hook.
class learning_hook : public token_hook {
  public:
    bool on_row(std::span<const token_id> text, std::span<float> logits) final {
        if (asked_) {
            learn(text.back());
        }
        asked_ = true;
        reconsider(text, logits);
        return true;
    }
    bool refused() final { return true; }

  private:
    // What was chosen from the last row; perhaps a token that was ruled out there, if somebody else has forced it.
    virtual void learn(token_id chosen) = 0;

    bool asked_ = false;
};

} // namespace duo
