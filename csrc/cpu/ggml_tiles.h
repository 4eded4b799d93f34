// The tile registers of Intel AMX, as ggml's kernels expect them.
#pragma once

namespace duo::cpu {

// ggml's AMX kernels configure each thread once and rely on that from then on, but other libraries of the process
// (PyTorch) configure it, too. This configures the calling thread and the OpenMP team of n_threads that it starts next.
// Call it before each computation by the CPU. It does nothing if ggml's AMX kernels are not used.
void restore_ggml_tiles(int n_threads);

} // namespace duo::cpu
