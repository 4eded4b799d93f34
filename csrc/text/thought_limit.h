// Ends a thought that has become too long: from then on, only the tokens that end it are allowed. llama.cpp:
// common/reasoning-budget.h, which looks for tokens; here the text counts, however it is cut into tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "token_hook.h"

namespace duo {

// The marks of one kind of thought.
struct thought_marks {
    std::string           begin;
    std::string           end;
    std::vector<token_id> forced; // what is written where the limit is reached: at least the end; empty: no limit
};

// One text. Belongs to the target's thread.
class thought_limit : public token_hook {
  public:
    // n_most: tokens of each thought. The prompt may have begun one. spell: a token's bytes, control tokens by their
    // names.
    thought_limit(std::vector<thought_marks> marks, int32_t n_most, std::function<std::string(token_id)> spell);

    bool on_row(std::span<const token_id> text, std::span<float> logits) override;
    // A grammar that does not allow the end of the thought comes first. The mark is tried again at the next token,
    // unless a part of it has been written.
    bool refused() override;

  private:
    void take(token_id token);
    bool take_mark(const std::string & mark);

    [[nodiscard]] size_t n_of_end(const thought_marks & m) const;

    const std::vector<thought_marks>           marks_;
    const int32_t                              n_most_;
    const std::function<std::string(token_id)> spell_;
    size_t                                     n_mark_ = 0; // bytes of the longest mark

    size_t                n_seen_ = 0;         // tokens of the text
    std::string           tail_;               // the text's last bytes, in which no mark was found
    const thought_marks * inside_   = nullptr; // the thought that runs
    int32_t               n_used_   = 0;       // its tokens that were generated
    bool                  forcing_  = false;
    bool                  given_up_ = false; // this thought has no limit any more
    size_t                n_forced_ = 0;     // of inside_->forced
};

} // namespace duo
