// The scales of the target's LoRA adapters that a text is written with.
#pragma once

#include <vector>

namespace duo {

// In the order in which the adapters were loaded. Empty: there are none, or they have the scales of the load.
using lora_scales = std::vector<float>;

} // namespace duo
