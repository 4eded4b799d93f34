// The scales of the target's LoRA adapters for texts that ask for no others.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "text/lora_scales.h"

namespace duo {

// Any thread may use it.
class default_scales {
  public:
    // loaded: one for each adapter of the target. Without this call the target is in another process.
    void begin(lora_scales loaded) {
        n_adapters_ = loaded.size();
        scales_     = std::move(loaded);
    }

    // Throws duo::error if the target is elsewhere, for another number of them, or for one that is no number.
    void set(const lora_scales & scales) {
        check(scales);
        const std::lock_guard locked(mutex_);
        scales_ = scales;
    }
    [[nodiscard]] lora_scales get() const {
        const std::lock_guard locked(mutex_);
        return scales_;
    }
    // Those of a text that asks for these; empty: it asks for none. Throws as set().
    [[nodiscard]] lora_scales of(const lora_scales & asked) const {
        if (asked.empty()) {
            return get();
        }
        check(asked);
        return asked;
    }

  private:
    void check(const lora_scales & scales) const;

    std::optional<size_t> n_adapters_;
    mutable std::mutex    mutex_;
    lora_scales           scales_;
};

} // namespace duo
