// A hook that remembers what it was asked, and ends its text or fails at a length.
#pragma once

#include "base/error.h"
#include "check.h"
#include "text/token_hook.h"

namespace duo_test {

using duo::token_hook;
using duo::token_id;

struct scripted_hook : token_hook {
    size_t stop_at  = 0; // length of the text; 0: never
    size_t throw_at = 0;

    std::vector<std::vector<token_id>> asked;

    bool on_row(std::span<const token_id> text, std::span<float> logits) override {
        CHECK(logits.empty()); // scripted models have none
        asked.emplace_back(text.begin(), text.end());
        if (text.size() == throw_at) {
            throw duo::error("the hook fails");
        }
        return text.size() != stop_at;
    }
};

} // namespace duo_test
