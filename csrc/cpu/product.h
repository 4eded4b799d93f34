// Products of packed matrices with inputs, by a team of threads.
#pragma once

#include <cstdlib>
#include <memory>
#include <vector>

#include "kernel.h"

namespace duo::cpu {

// One input (k floats) and where its product (n floats) goes.
struct column {
    const float * x;
    float *       y;
};

// A packed matrix and the inputs that meet it.
struct job {
    const uint8_t *     weights;
    std::vector<column> columns;
};

// Memory that grows and is kept: inputs are prepared into it.
class workspace {
  public:
    uint8_t * reserve(size_t n);

  private:
    struct free_bytes {
        void operator()(void * p) const { std::free(p); }
    };
    std::unique_ptr<void, free_bytes> data_;
    size_t                            size_ = 0;
};

// How many bytes ahead of use the kernels of a format ask for weights; 0: hardware alone. Only speed depends on it:
// which distance is best is the machine's affair (Zen 5, one core, Q4_K: 17 GB/s at 0, 32 at 4,096, 33 at 8,192, 31 at
// 20,480).
constexpr int n_ahead_usual = 8192;
constexpr int n_ahead_most  = 65536;
int           read_ahead(format f);
void          set_read_ahead(format f, int n_bytes); // for the whole process, at any time

// False: built without OpenMP, so that a product has one thread whatever is asked.
bool has_threads();

// Computes all jobs; they share the shape. Deterministic: a product's bits depend neither on the number of columns nor
// on that of threads. Threads are OpenMP's team of the caller, as ggml-cpu's. prepared: the workspace still holds the
// same columns of the same kind from the call before (its size of job and columns too).
// Throws std::bad_alloc.
void multiply(const kernel_set & kernels, const matrix_shape & shape, const std::vector<job> & jobs, int n_threads,
              workspace & memory, bool prepared);

} // namespace duo::cpu
