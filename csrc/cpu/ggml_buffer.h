// Weights in the packed form of format.h, as a ggml buffer type.
#pragma once

#include <optional>
#include <string>

#include "format.h"
#include "ggml_interface.h"

namespace duo::cpu {

// The packed shape of a weight; empty: stock kernels handle this type or shape.
std::optional<matrix_shape> shape_of(ggml_type type, int64_t n_columns, int64_t n_rows);
// Bytes of a matrix of this type, by ggml's name, for duo's kernels; 0: they do not take it.
int64_t packed_bytes(const std::string & type, int64_t n_columns, int64_t n_rows);
// By ggml's name. GGML_TYPE_COUNT: there is no such type.
ggml_type type_named(const std::string & name);

// The packed shape of a tensor in a weight buffer; its third dimension counts matrices (experts).
matrix_shape shape_of(const ggml_tensor * weight);

// The type that its buffer keeps the tensor's weights in.
ggml_type stored_type(const ggml_tensor * weight);

// Its buffers have weight_memory. stored: the type in which weights of any type are kept (see requantise.h); it must
// outlive the buffer type. nullptr: as they are.
ggml_backend_buffer_type make_buffer_type(ggml_backend_dev_t device, const ggml_type * stored = nullptr);

// True for tensors (or views of tensors) in a weight buffer.
bool is_packed(const ggml_tensor * t);

} // namespace duo::cpu
