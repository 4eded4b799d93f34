// Looks at a GGUF file before libllama does: a clear sentence for what libllama would answer with a bare NULL or an
// abort.
#pragma once

#include <string>

namespace duo {

// Throws duo::error: no such file, not a GGUF, truncated, or header values that no model can have. Reads headers only.
void check_model_file(const std::string & path);

} // namespace duo
