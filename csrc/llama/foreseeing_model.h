// A model whose mapped experts can be read ahead.
#pragma once

#include <span>

#include "cpu/experts_ahead.h"
#include "model/token_model.h"

namespace duo {

class foreseeing_model : public token_model {
  public:
    // nullptr: its weights are not mapped, or it has no context.
    [[nodiscard]] const cpu::experts_ahead * experts() const { return experts_; }

    [[nodiscard]] bool expects() const override { return experts_ != nullptr && experts_->expects(); }
    void               expect(std::span<const token_id> tokens) override {
        if (experts_ != nullptr) {
            experts_->expect(tokens);
        }
    }

  protected:
    cpu::experts_ahead * experts_ = nullptr; // the context's
};

} // namespace duo
