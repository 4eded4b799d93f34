// Weights in the packed form of format.h, as a ggml buffer type.
#pragma once

#include <optional>

#include "format.h"
#include "ggml_interface.h"

namespace duo::cpu {

// How a weight would be packed; nothing: this type or shape is left to stock kernels.
std::optional<matrix_shape> shape_of(ggml_type type, int64_t n_columns, int64_t n_rows);

// The same of a tensor in a weight buffer; a third dimension counts matrices (experts).
matrix_shape shape_of(const ggml_tensor * weight);

// Memory of a weight buffer is asked for in huge pages: without them the page tables cost a quarter of the read speed.
ggml_backend_buffer_type make_buffer_type(ggml_backend_dev_t device);

// While one lives, weight buffers that this thread allocates are locked into memory as far as the system allows.
class lock_weights {
  public:
    explicit lock_weights(bool lock);
    ~lock_weights();
    lock_weights(const lock_weights &)             = delete;
    lock_weights & operator=(const lock_weights &) = delete;
};

// True for tensors (or views of tensors) that lie in a weight buffer.
bool is_packed(const ggml_tensor * t);

} // namespace duo::cpu
