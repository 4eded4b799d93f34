// Which weights lie in which memory: what the user said first, then what duo's CPU kernels take.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <llama.h>

namespace duo {

// For llama_model_params.tensor_buft_overrides; must live until the model is loaded.
class weight_placement {
  public:
    // path: the file (of a split model the first one). types: ggml's names of the weight types that go to duo's
    // kernels. n_gpu_layers < 0: all, 0: none; without a device it must be 0. overrides: (pattern, name of a buffer
    // type), as llama.cpp's -ot. Throws duo::error for a pattern that is none, and for an unknown buffer.
    weight_placement(const std::string & path, const std::vector<std::string> & types, int32_t n_gpu_layers,
                     const std::vector<std::pair<std::string, std::string>> & overrides);

    // nullptr-terminated; nullptr if nothing is placed.
    [[nodiscard]] const llama_model_tensor_buft_override * entries() const;

    // Weights of matrix products that duo's kernels get, and that stock kernels keep on the CPU.
    [[nodiscard]] int n_duo() const { return n_duo_; }
    [[nodiscard]] int n_stock() const { return n_stock_; }
    // F32 matrices beside them, as routers of experts: always stock's.
    [[nodiscard]] int n_small() const { return n_small_; }

    // Memory that loading duo's takes.
    [[nodiscard]] uint64_t n_bytes() const { return n_bytes_; }

    // ggml's names of the types of all such weights on the CPU, each once.
    [[nodiscard]] const std::vector<std::string> & cpu_types() const { return cpu_types_; }

    // Bytes of the matrices that a pass multiplies by on the CPU, by type. Nothing where some are experts: how many of
    // those a pass reads depends on its tokens.
    [[nodiscard]] std::map<std::string, uint64_t> cpu_bytes() const;

  private:
    void add(const std::string & pattern, ggml_backend_buffer_type_t buft);
    void count_bytes(ggml_type type, int64_t n_columns, int64_t n_rows, int64_t n_matrices);
    void place_user(const std::vector<std::pair<std::string, std::string>> & overrides);
    void place_duo(const std::string & path, const std::vector<std::string> & types, int32_t n_gpu_layers);

    std::deque<std::string>                       patterns_; // entries_ points into it
    std::vector<llama_model_tensor_buft_override> entries_;
    std::vector<std::string>                      cpu_types_;
    std::map<std::string, uint64_t>               cpu_bytes_;
    bool                                          bytes_known_ = true;
    int                                           n_duo_       = 0;
    int                                           n_stock_     = 0;
    int                                           n_small_     = 0;
    uint64_t                                      n_bytes_     = 0;
};

} // namespace duo
