// Computes the nodes of a graph on duo's device, one after the other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cell_order.h"
#include "experts_ahead.h"
#include "ggml_device.h"
#include "ggml_interface.h"
#include "kernel.h"
#include "page_reader.h"
#include "product.h"
#include "router_ahead.h"

namespace duo::cpu {

// Number of attentions that this thread has computed.
int64_t n_attentions();
// What its products with experts have read.
const experts_read & read_of_experts();

// For the attentions that this thread computes from now on; nullptr: cells are added as they lie. Returns the one
// before.
cell_order * set_cell_order(cell_order * order);

// Told of each product that this thread computes from now on; nullptr: of none. Returns the one before.
page_reader * set_page_reader(page_reader * pages);
// The same, of the products of routers and experts, after the page reader.
experts_ahead * set_experts_ahead(experts_ahead * ahead);

// Rows of a weight that products compute; the others become -inf.
struct row_choice {
    std::string            weight; // its name
    int64_t                n_rows = 0;
    std::vector<panel_run> runs;
};

// While it exists, this thread's products by that weight compute only these rows. nullptr: all rows of all weights.
class choose_rows {
  public:
    explicit choose_rows(const row_choice * rows);
    ~choose_rows();
    choose_rows(const choose_rows &)             = delete;
    choose_rows & operator=(const choose_rows &) = delete;

  private:
    const row_choice * before_;
};

// While it exists, this thread's products are small numbers, and no weight is read: for a pass of which only the graph
// counts.
class skip_products {
  public:
    explicit skip_products(bool skip = true);
    ~skip_products();
    skip_products(const skip_products &)             = delete;
    skip_products & operator=(const skip_products &) = delete;

  private:
    bool before_;
};

// One context's backend: its thread count and scratch memory. Like the context, only one thread at a time may use it.
class backend {
  public:
    int n_threads = GGML_DEFAULT_N_THREADS;

    ggml_status compute(ggml_cgraph * graph);
    // Discards the prepared inputs, because their graph has ended.
    void forget();

  private:
    void compute(ggml_tensor * node);
    bool is_prepared(const ggml_tensor * node, prepare_fn by);
    void multiply_matrix(ggml_tensor * node);
    void multiply_experts(ggml_tensor * node);
    void foresee(const ggml_tensor * router);
    void tell_experts(const ggml_tensor * node);
    void get_rows(ggml_tensor * node);
    void attend_cells(ggml_tensor * node);

    workspace            memory_;
    workspace            scores_; // separate, because memory_ keeps prepared inputs
    std::vector<job>     jobs_;
    std::vector<int32_t> chosen_; // scratch: experts of a product
    std::vector<int32_t> ids_;    // scratch: experts of its rows
    router_ahead         routers_;

    // The input prepared in memory_, and the products that have used it.
    const ggml_tensor *              input_ = nullptr;
    const void *                     data_  = nullptr;
    prepare_fn                       by_    = nullptr;
    int64_t                          n_     = 0;
    std::vector<const ggml_tensor *> users_;
};

} // namespace duo::cpu
