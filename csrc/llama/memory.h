// Estimates whether a model fits. If a cache is too large, the system kills the process when the pages are written.
#pragma once

#include <cstdint>
#include <string>

#include <llama.h>

namespace duo {

// Bytes of main memory that this process may still allocate; UINT64_MAX: unknown (not Linux).
uint64_t memory_available();

// Estimated bytes of the KV cache in main memory, for those of n_layer layers that are not on a device; 0 for recurrent
// memory.
uint64_t cache_bytes(const llama_model * model, const std::string & arch, int64_t n_layer, uint64_t n_ctx,
                     int32_t n_gpu_layers, ggml_type k, ggml_type v);

} // namespace duo
