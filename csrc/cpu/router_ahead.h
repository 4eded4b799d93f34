// Applies the router of the next layer to what the router of this one reads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ggml.h>

#include "product.h"

namespace duo::cpu {

// The input of a router is the hidden state, divided by its root mean square, times the weights of a norm. The hidden
// state changes little until the next layer's router, so with that norm's weights it is almost what that one will read.
// What is missing: the experts of this layer and the attention of the next.
//
// One backend's.
class router_ahead {
  public:
    // A product is computed. True: it is a router's.
    bool on_product(const ggml_tensor * node);
    // A product with experts of this layer is computed; the last router has chosen them.
    void on_experts(const ggml_tensor * node, int32_t layer);

    // The layer of the last router; -1: not known yet.
    [[nodiscard]] int32_t layer() const { return layer_; }
    // What the router of the next layer says of the rows of the last router's product, [rows][n_expert]: the larger,
    // the sooner it chooses an expert. Empty: not known. Valid until the next call.
    std::span<const float> next(const ggml_tensor * node, int n_threads);

  private:
    // What is done to the product before the bias is added.
    enum class gate : uint8_t { plain, sigmoid, softmax };

    struct router {
        const ggml_tensor * weight = nullptr;
        const float *       norm   = nullptr; // weights of the norm before it; nullptr: not known
        const float *       bias   = nullptr; // added before the best are chosen; nullptr: none
        gate                how    = gate::plain;
    };

    // How experts are chosen. False: in a way that is not known here.
    static bool read_choice(const ggml_tensor * chosen, router & r);
    void        fill_inputs(const ggml_tensor * x, const router & now, const router & then);
    void        add_bias(const router & r, size_t n_expert);

    std::vector<router> routers_; // by layer
    router              last_;
    int32_t             layer_ = -1;
    std::vector<float>  inputs_;
    std::vector<float>  scores_;
    std::vector<job>    jobs_;
    workspace           memory_;
};

} // namespace duo::cpu
