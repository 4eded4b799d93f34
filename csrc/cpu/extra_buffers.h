// ggml-cpu's extra buffer types: weights rearranged for AMX, or for wider vectors.
#pragma once

#include <vector>

#include <ggml-backend.h>

namespace duo::cpu {

// The types in the order in which libllama tries them. The first call asks the system for AMX, like libllama.
std::vector<ggml_backend_buffer_type_t> extra_buffers();

// Whether models and races of this process may use them. They may until duo.placement.guard forbids it.
bool extra_buffers_allowed();
void allow_extra_buffers(bool yes);

// All of them if allowed, otherwise none.
std::vector<ggml_backend_buffer_type_t> allowed_extra_buffers();

// The one for AMX; nullptr if there is none or it is not allowed. With 0.3.36's kernels for it (ggml-cpu/amx) planes of
// inputs fail: each plane is multiplied by a matrix of its own, although there is only one, and inputs that are not
// contiguous end the process.
ggml_backend_buffer_type_t allowed_amx_buffers();

} // namespace duo::cpu
