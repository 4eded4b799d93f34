// A ggml device of type ACCEL that multiplies packed weights, and computes attention on request. Stock libllama does
// not place tensors there by itself: llama_model_params.tensor_buft_overrides places the weights, and the scheduler
// follows them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <ggml-backend.h>

#include "cell_order.h"
#include "experts_ahead.h"
#include "ggml_build.h"
#include "page_reader.h"

namespace duo::cpu {

// The libggml in this process. release: that of llama-cpp-python, set by set_release().
ggml_build loaded_build();
void       set_release(const std::string & release);

// Why the kernels cannot use the structures of this libggml; empty: they can. Part of why_no_kernels().
std::string other_ggml();

// Why this machine or this libggml cannot use duo's kernels; empty: it can. Registers nothing.
std::string why_no_kernels();

// The buffer type for weights; nullptr if why_no_kernels() gives a reason. The first call registers the device, and
// from then on every context of the process has it. So call this only if there are weights to place. Not thread-safe:
// ggml's registry has no lock.
ggml_backend_buffer_type_t weight_buffer_type();

// The same for a draft's weights of any type, which are requantised to `stored` while they are read. nullptr: there is
// none for this type, or why_no_kernels().
ggml_backend_buffer_type_t draft_buffer_type(ggml_type stored);

// ggml's names of the types that `stored` may be.
std::vector<std::string> packed_type_names();

// While it exists, graphs that this thread builds give attention (ggml's FLASH_ATTN_EXT over an F16 cache in host
// memory) to duo's device. Every context of the process has the device, so each call sets this for its context.
class take_attention {
  public:
    // order: where the cells of the context's cache are; it must outlive this object. nullptr: as they lie.
    explicit take_attention(bool take, cell_order * order = nullptr);
    ~take_attention();
    take_attention(const take_attention &)             = delete;
    take_attention & operator=(const take_attention &) = delete;

    // Number of attentions that this thread has computed so far.
    static int64_t n_done();

  private:
    bool         before_;
    cell_order * order_before_;
};

// While it exists, both are told of each product that this thread computes. nullptr: weights are in memory.
class read_pages_ahead {
  public:
    read_pages_ahead(page_reader * pages, experts_ahead * experts);
    ~read_pages_ahead();
    read_pages_ahead(const read_pages_ahead &)             = delete;
    read_pages_ahead & operator=(const read_pages_ahead &) = delete;

  private:
    page_reader *   before_;
    experts_ahead * experts_before_;
};

// What this thread's products with experts have read so far.
struct experts_read {
    int64_t n_products = 0;
    int64_t n_experts  = 0; // distinct ones of each product
    int64_t n_bytes    = 0; // of their packed weights
};
experts_read experts_read_so_far();

// While it exists, graphs that this thread builds leave products of many rows to a device that wants them, as llama.cpp
// does for weights in its own host memory (--op-offload): the scheduler copies a weight there, and get_tensor() unpacks
// it. devices: of the model; they must outlive this object. Each call sets this for its context.
class offload_products {
  public:
    explicit offload_products(std::span<const ggml_backend_dev_t> devices);
    ~offload_products();
    offload_products(const offload_products &)             = delete;
    offload_products & operator=(const offload_products &) = delete;

  private:
    std::span<const ggml_backend_dev_t> before_;
};

// The instruction set in use, e.g. "avx512"; empty: none.
std::string kernels_name();

} // namespace duo::cpu
