// Will it fit? The system answers a cache that is too large by killing the process, once the pages are written.
#pragma once

#include <cstdint>
#include <string>

#include <llama.h>

namespace duo {

// Bytes of main memory that a process may still take; UINT64_MAX: unknown (not Linux).
uint64_t memory_available();

// Bytes of the KV cache in main memory: of the layers that are not on a device. An estimate; 0 for recurrent memory.
uint64_t cache_bytes(const llama_model * model, const std::string & arch, uint64_t n_ctx, int32_t n_gpu_layers,
                     ggml_type k, ggml_type v);

} // namespace duo
