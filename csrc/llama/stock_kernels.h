// ggml-cpu decides once in a process, at its first matrix product, whether K-quants are tiled from 8 rows on; --strict
// needs them not to be.
#pragma once

#include "model.h"

namespace duo {

// To be called before a model loads. Throws duo::error where --strict cannot be had.
void prepare_stock_kernels(const model_options & target);

// Something else is about to compute with stock kernels.
void stock_kernels_used();

} // namespace duo
