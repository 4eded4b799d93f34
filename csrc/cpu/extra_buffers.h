// ggml-cpu's buffer types beside the plain one: weights rearranged for AMX, or for wider vectors.
#pragma once

#include <vector>

#include <ggml-backend.h>

namespace duo::cpu {

// In the order in which libllama tries them. The first call asks the system for AMX, as libllama would.
std::vector<ggml_backend_buffer_type_t> extra_buffers();

// May models and races of this process use them? Yes, until somebody (duo.placement.guard) says no.
bool extra_buffers_allowed();
void allow_extra_buffers(bool yes);

// All of them if they are allowed, else none.
std::vector<ggml_backend_buffer_type_t> allowed_extra_buffers();

} // namespace duo::cpu
