// The tile registers of Intel AMX, as ggml's kernels expect them.
#pragma once

namespace duo::cpu {

// ggml's AMX kernels configure each thread once and rely on that from then on, but other libraries of the process
// (PyTorch) configure it, too.

// Finds out what ggml configures, once. Call it before weights are placed in ggml's buffers for AMX, without Python's
// lock: ggml's log may call Python from another thread. False: it could not be found out for lack of memory or threads,
// so do not use these buffers.
bool learn_ggml_tiles();

// Configures the calling thread and the OpenMP team of n_threads that it starts next. Call it before each computation
// by the CPU with such weights. It does nothing if nothing was learned.
void restore_ggml_tiles(int n_threads);

} // namespace duo::cpu
