// What duo's device computes: the nodes of a graph, one after the other.
#pragma once

#include <cstdint>
#include <vector>

#include "ggml_interface.h"
#include "kernel.h"
#include "product.h"

namespace duo::cpu {

// Attentions that this thread has computed.
int64_t n_attentions();

// One context's backend: its thread count and scratch memory. Used by one thread at a time, as the context is.
class backend {
  public:
    int n_threads = GGML_DEFAULT_N_THREADS;

    ggml_status compute(ggml_cgraph * graph);
    // The prepared inputs are those of a graph that has ended.
    void forget();

  private:
    void compute(ggml_tensor * node);
    bool is_prepared(const ggml_tensor * node, input_kind kind);
    void multiply_matrix(ggml_tensor * node);
    void multiply_experts(ggml_tensor * node);
    void get_rows(ggml_tensor * node);
    void attend_cells(ggml_tensor * node);

    workspace        memory_;
    workspace        scores_; // memory_ keeps prepared inputs
    std::vector<job> jobs_;

    // What memory_ holds prepared, and the products that have used it.
    const ggml_tensor *              input_ = nullptr;
    const void *                     data_  = nullptr;
    input_kind                       kind_{};
    int64_t                          n_ = 0;
    std::vector<const ggml_tensor *> users_;
};

} // namespace duo::cpu
