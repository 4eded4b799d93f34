// Several hooks of one text, each of which sees what those before it have left of a row.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "token_hook.h"

namespace duo {

class hook_chain : public token_hook {
  public:
    explicit hook_chain(std::vector<std::shared_ptr<token_hook>> hooks) : hooks_(std::move(hooks)) {}

    bool on_row(std::span<const token_id> text, std::span<float> logits) override {
        return std::all_of(hooks_.begin(), hooks_.end(), [&](const auto & h) { return h->on_row(text, logits); });
    }

    bool refused() override {
        bool any = false;
        for (const auto & h : hooks_) {
            any |= h->refused();
        }
        return any;
    }

    void reconsider(std::span<const token_id> text, std::span<float> logits) override {
        for (const auto & h : hooks_) {
            h->reconsider(text, logits);
        }
    }

  private:
    const std::vector<std::shared_ptr<token_hook>> hooks_;
};

} // namespace duo
