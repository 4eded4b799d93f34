// The length of the beginning that two texts have in common.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "messages.h"

namespace duo {

// Leading tokens that both have.
inline int32_t n_same(std::span<const token_id> a, std::span<const token_id> b) {
    return int32_t(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

} // namespace duo
