// Texts whose LoRA adapters have different scales cannot share a pass: they take turns.
#pragma once

#include <cstdint>
#include <vector>

#include "verify_slot.h"

namespace duo {

// Belongs to the verify worker's thread.
class scale_turns {
  public:
    // Of the texts that are written, those that the next pass may be over: all, if their scales are the same. A turn
    // has many passes, because libllama plans its memory anew when scales change, but few while one of the texts reads
    // a long prompt. Then those are next whose last pass was the longest ago. Valid until the next call.
    [[nodiscard]] const std::vector<verify_slot *> & choose(const std::vector<verify_slot *> & texts);

  private:
    static constexpr int32_t n_passes      = 16; // of a turn
    static constexpr int32_t n_passes_long = 2;  // while a long prompt is read

    std::vector<verify_slot *> chosen_;
    lora_scales                now_;
    int32_t                    n_left_ = 0; // passes of this turn
};

} // namespace duo
