// A ggml device of type ACCEL that multiplies packed weights and does nothing else. Stock libllama puts no tensor there
// by itself: weights come by llama_model_params.tensor_buft_overrides, and the scheduler follows the weights.
#pragma once

#include <string>

#include <ggml-backend.h>

namespace duo::cpu {

// The buffer type for weights; the device is registered at the first call. nullptr: this machine or this libggml cannot
// use it, and `why` says so. Not thread-safe: ggml's registry has no lock.
ggml_backend_buffer_type_t weight_buffer_type(std::string * why = nullptr);

// The instruction set in use, as "avx512"; empty without one.
std::string kernels_name();

} // namespace duo::cpu
