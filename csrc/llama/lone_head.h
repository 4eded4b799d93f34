// A draft head without its target.
#pragma once

#include <string>

namespace duo {

// For a draft whose target is elsewhere. Throws duo::error if the file is a draft head.
void refuse_lone_head(const std::string & path);

} // namespace duo
