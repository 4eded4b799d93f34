// Weights that are kept in another type than the file's, for drafts: a draft's bits change how often it is right, and
// never the text.
#pragma once

#include <ggml.h>

#include "repack.h"

namespace duo::cpu {

// Converts rows of n_columns weights from one of ggml's types to another, by ggml's own functions. Empty: the types are
// the same, or ggml cannot convert between them.
convert_fn conversion(ggml_type from, ggml_type to, int64_t n_columns);

// n numbers of a row that is stored in this type.
void to_floats(ggml_type type, const uint8_t * row, int64_t n, float * out);

} // namespace duo::cpu
