#include "default_scales.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace duo {

void default_scales::check(const lora_scales & scales) const {
    const size_t n = n_adapters_.value_or(0);
    if (scales.size() != n) {
        throw error(error_kind::bad_value, std::to_string(scales.size()) + " scales of LoRA adapters were given, and " +
                                               (n_adapters_ ? std::to_string(n) + " adapters are loaded (--lora)"
                                                            : "the target is in another process, where they are set"));
    }
    if (!std::ranges::all_of(scales, [](float x) { return std::isfinite(x); })) {
        throw error(error_kind::bad_value, "a LoRA adapter's scale is no finite number; give one, such as 1");
    }
}

} // namespace duo
