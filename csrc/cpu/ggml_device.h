// A ggml device of type ACCEL that multiplies packed weights, and attends where it is told to. Stock libllama puts no
// tensor there by itself: weights come by llama_model_params.tensor_buft_overrides, and the scheduler follows the
// weights.
#pragma once

#include <string>

#include <ggml-backend.h>

#include "ggml_build.h"

namespace duo::cpu {

// The libggml in this process. release: of the llama-cpp-python that it was loaded from, as told by set_release().
ggml_build loaded_build();
void       set_release(const std::string & release);

// Why the kernels do not know the structures of this libggml; empty: they do. Part of why_no_kernels().
std::string other_ggml();

// Why this machine or this libggml cannot use duo's kernels; empty: it can. Registers nothing.
std::string why_no_kernels();

// The buffer type for weights; nullptr if why_no_kernels() says why. The device is registered at the first call, and
// from then on every context of the process has it, so: only when there are weights to place. Not thread-safe: ggml's
// registry has no lock.
ggml_backend_buffer_type_t weight_buffer_type();

// While it lives, graphs that this thread builds leave attention (ggml's FLASH_ATTN_EXT over an F16 cache in host
// memory) to duo's device. Every context of the process has the device, so each call says whether its context wants
// that.
class take_attention {
  public:
    explicit take_attention(bool take);
    ~take_attention();
    take_attention(const take_attention &)             = delete;
    take_attention & operator=(const take_attention &) = delete;

    // How many of them this thread has computed, ever.
    static int64_t n_done();

  private:
    bool before_;
};

// The instruction set in use, as "avx512"; empty without one.
std::string kernels_name();

} // namespace duo::cpu
