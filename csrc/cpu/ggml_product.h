// One product of a weight matrix through ggml, for races, comparisons and the trial in a child process.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ggml-cpp.h>

namespace duo::cpu {

// A weight, an input and their product in a graph of one node, on one backend.
class ggml_product {
  public:
    // Weights [n_rows][n_columns] in memory of type `weights`, computed by `device`. Throws duo::error without memory.
    ggml_product(ggml_backend_buffer_type_t weights, ggml_backend_dev_t device, int n_threads, ggml_type type,
                 int64_t n_columns, int64_t n_rows, int width);
    // Shares the other's weights, and has its own inputs and threads.
    ggml_product(const ggml_product & other, int n_threads, int width);

    // Whether the device can multiply by this type and shape from that memory. If not, do not call the functions below.
    [[nodiscard]] bool can_run(ggml_backend_dev_t device) const;

    // weight: in the file's form. input: [width][n_columns].
    void set(const std::vector<uint8_t> & weight, const std::vector<float> & input);
    void set_input(const std::vector<float> & input);

    void compute();

    // The next compute() reads the weights from main memory. Only if can_evict().
    void evict_weights() const;

    // [width][n_rows]
    [[nodiscard]] std::vector<float> product() const;

  private:
    struct matrix {
        ggml_context_ptr        context;
        ggml_backend_buffer_ptr buffer;
        ggml_tensor *           tensor = nullptr;
    };

    void build(int n_threads, int width);

    ggml_backend_dev_t      device_;
    std::shared_ptr<matrix> weight_;
    ggml_backend_ptr        backend_;
    ggml_context_ptr        context_;
    ggml_backend_buffer_ptr rest_;
    ggml_tensor *           input_   = nullptr;
    ggml_tensor *           product_ = nullptr;
    ggml_cgraph *           graph_   = nullptr;
};

// Returns the same n numbers at each call.
std::vector<float> gaussian(size_t n, float scale);

// Weights of this type in the file's form, the same at each call. They are quantised, or random where that needs what
// ggml takes seconds to prepare. Rows are multiples of 64 columns.
std::vector<uint8_t> some_rows(ggml_type type, int64_t n_rows, int64_t n_columns);

// Sum of squared differences from the product in double precision, divided by that product's sum of squares.
double error_of(const std::vector<float> & got, const std::vector<float> & weights, const std::vector<float> & input,
                size_t n_columns);

} // namespace duo::cpu
