#include "quantise.h"

#include "kernel.h"

namespace duo::cpu {

void quantise_row(format f, const float * x, int64_t n, uint8_t * file) {
    const kernel_set * const best = best_kernels();
    (best == nullptr ? kernels_portable : *best).quantise(f, x, n / 32, file);
}

} // namespace duo::cpu
