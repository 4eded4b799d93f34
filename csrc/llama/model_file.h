// Looks at a GGUF file before libllama does: a clear sentence for what libllama would answer with a bare NULL or an
// abort.
#pragma once

#include <string>

namespace duo {

// Throws duo::error: no such file, not a GGUF, truncated, or header values that no model can have. Reads headers only.
void check_model_file(const std::string & path);

// Some weights are K- or I-quants, whose products ggml-cpu tiles from 8 rows on. False if the file cannot be read.
bool uses_tiled_products(const std::string & path);

} // namespace duo
