// Characters in UTF-8 that may be cut off or wrong.
#pragma once

#include <cstddef>
#include <string>

namespace duo {

// Bytes at the end of `s` that begin a UTF-8 character whose rest is missing: 0..3.
size_t utf8_incomplete(const std::string & s) noexcept;

// Invalid bytes replaced by U+FFFD, one for each maximal invalid part (Unicode 16, 3.9).
std::string utf8_valid(const std::string & s);

} // namespace duo
