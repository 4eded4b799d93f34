// Products of packed matrices with inputs, by a team of threads.
#pragma once

#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "kernel.h"

namespace duo::cpu {

// One input (k floats), and the destination of its product (n floats).
struct column {
    const float * x;
    float *       y;
};

// Panels [from, to) of a block.
struct panel_run {
    int64_t block;
    int     from, to;
};

// A packed matrix and its inputs.
struct job {
    const uint8_t *            weights;
    std::vector<column>        columns;
    std::span<const panel_run> only = {}; // compute these rows and leave the others as they are; empty: compute all
};

// Memory for prepared inputs; it grows and is reused.
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

// How many bytes ahead the kernels of a format prefetch weights; 0: hardware prefetching only. This affects speed only,
// and the best distance depends on the machine (Zen 5, one core, Q4_K: 17 GB/s at 0, 32 at 4,096, 33 at 8,192, 31 at
// 20,480).
constexpr int n_ahead_usual = 8192;
constexpr int n_ahead_most  = 65536;
int           read_ahead(format f);
void          set_read_ahead(format f, int n_bytes); // for the whole process, at any time

// False: built without OpenMP, so a product always has one thread.
bool has_threads();

// Computes all jobs, which share the shape and the number of runs in `only`. A product's bits do not depend on the
// number of columns or threads. The threads are the caller's OpenMP team, as in ggml-cpu. prepared: the workspace still
// has the same columns from the previous call, with the same numbers of jobs and columns, prepared by the same function
// (kernel_set::prepare_of). Throws std::bad_alloc.
void multiply(const kernel_set & kernels, const matrix_shape & shape, const std::vector<job> & jobs, int n_threads,
              workspace & memory, bool prepared);

} // namespace duo::cpu
