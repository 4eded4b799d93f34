// A text that an engine writes, as Python holds it.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "engine.h"

namespace duo {

// A text that nobody holds any more ends: Ctrl-C may come between its begin and the moment
// when Python has it.
class text_handle {
  public:
    text_handle(const engine & e, std::shared_ptr<open_text> text) : wires_(e.ends()), text_(std::move(text)) {}
    text_handle(text_handle &&) noexcept             = default;
    text_handle & operator=(text_handle &&) noexcept = default;
    text_handle(const text_handle &)                 = delete;
    text_handle & operator=(const text_handle &)     = delete;

    ~text_handle() {
        if (text_ != nullptr) {
            text_->req().cancelled.store(true, std::memory_order_relaxed);
            wires_->verify_bell.ring();
        }
    }

    [[nodiscard]] open_text & get() const { return *text_; }

  private:
    std::shared_ptr<wires>     wires_;
    std::shared_ptr<open_text> text_;
};

} // namespace duo
