// ggml-cpu decides once per process, at its first matrix product, whether it tiles K-quants from 8 rows on. --strict
// needs it not to.
#pragma once

#include "model_options.h"

namespace duo {

// Call this before a model loads. Throws duo::error if --strict is not possible.
void prepare_stock_kernels(const model_options & target);

// Call this before other code computes with stock kernels.
void stock_kernels_used();

} // namespace duo
