// Checks a GGUF file before libllama reads it: a clear error where libllama would only return NULL or abort.
#pragma once

#include <string>

#include "gguf_handle.h"

namespace duo {

// Throws duo::error if the file is missing, not GGUF or truncated, or has impossible header values. Reads headers only.
void check_model_file(const std::string & path);

// Bytes of the file; of a packed one, of the model's file that it was made from. Throws duo::error if it is too short
// for its weights.
uint64_t check_size(const std::string & path, const gguf_handle & header);

// Whether some weights are K- or I-quants, whose products ggml-cpu tiles from 8 rows on. False if the file cannot be
// read.
bool uses_tiled_products(const std::string & path);

} // namespace duo
