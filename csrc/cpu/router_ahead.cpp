#include "router_ahead.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include <ggml-backend.h>

#include "ggml_buffer.h"
#include "kernel.h"

namespace duo::cpu {

namespace {

// Numbers of a weight with one row, in host memory. Those of a graph's other tensors would be gone with it.
const float * numbers_of(const ggml_tensor * t, int64_t n) {
    const bool fits = t != nullptr && t->type == GGML_TYPE_F32 && ggml_nelements(t) == n && ggml_is_contiguous(t) &&
                      t->data != nullptr && t->buffer != nullptr && ggml_backend_buffer_is_host(t->buffer) &&
                      ggml_backend_buffer_get_usage(t->buffer) == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
    return fits ? static_cast<const float *>(t->data) : nullptr;
}

const ggml_tensor * without_views(const ggml_tensor * t) {
    while (t->op == GGML_OP_VIEW || t->op == GGML_OP_RESHAPE || t->op == GGML_OP_CONT) {
        t = t->src[0];
    }
    return t;
}

const float * norm_before(const ggml_tensor * x) {
    x = without_views(x);
    return x->op == GGML_OP_MUL && x->src[0]->op == GGML_OP_RMS_NORM ? numbers_of(x->src[1], x->ne[0]) : nullptr;
}

bool is_sigmoid(const ggml_tensor * t) {
    return t->op == GGML_OP_UNARY && ggml_get_unary_op(t) == GGML_UNARY_OP_SIGMOID;
}

} // namespace

bool router_ahead::on_product(const ggml_tensor * node) {
    const ggml_tensor * w = node->src[0];
    if (!std::string_view(w->name).ends_with("ffn_gate_inp.weight")) {
        return false;
    }
    last_         = {.weight = w, .norm = norm_before(node->src[1])};
    const auto at = std::ranges::find(routers_, w, &router::weight);
    layer_        = at == routers_.end() ? -1 : int32_t(at - routers_.begin());
    return true;
}

void router_ahead::on_experts(const ggml_tensor * node, int32_t layer) {
    router r = std::exchange(last_, {}); // other experts have another router, or none
    if (r.weight == nullptr || layer_ >= 0 || layer < 0 || !read_choice(node->src[2], r)) {
        return;
    }
    layer_ = layer;
    routers_.resize(std::max(routers_.size(), size_t(layer) + 1));
    routers_[size_t(layer)] = r;
}

// The best of the product, of its sigmoid or of its softmax, which have the same order; a bias is added to one of them.
bool router_ahead::read_choice(const ggml_tensor * chosen, router & r) {
    const ggml_tensor * x = without_views(chosen);
    if (x->op != GGML_OP_ARGSORT && x->op != GGML_OP_TOP_K) {
        return false;
    }
    const auto take_bias = [&r, &x] { // what is no bias stays, and is not known
        if (x->op == GGML_OP_ADD && (r.bias = numbers_of(x->src[1], r.weight->ne[1])) != nullptr) {
            x = without_views(x->src[0]);
        }
    };
    x = without_views(x->src[0]);
    take_bias();
    if (x->op == GGML_OP_SOFT_MAX || is_sigmoid(x)) {
        const gate how = x->op == GGML_OP_SOFT_MAX ? gate::softmax : gate::sigmoid;
        x              = without_views(x->src[0]);
        if (r.bias != nullptr) {
            r.how = how;
        } else {
            take_bias();
        }
    }
    return x->op == GGML_OP_MUL_MAT && x->src[0] == r.weight;
}

std::span<const float> router_ahead::next(const ggml_tensor * node, int n_threads) {
    if (layer_ < 0 || size_t(layer_) + 1 >= routers_.size()) {
        return {};
    }
    const router &      now  = routers_[size_t(layer_)];
    const router &      then = routers_[size_t(layer_) + 1];
    const ggml_tensor * x    = node->src[1];
    if (then.weight == nullptr || !ggml_are_same_shape(now.weight, then.weight) || x->ne[2] * x->ne[3] != 1) {
        return {};
    }
    const matrix_shape s      = shape_of(then.weight);
    const auto         n_rows = size_t(x->ne[1]);
    fill_inputs(x, now, then);
    scores_.resize(n_rows * size_t(s.n));
    jobs_.resize(1);
    jobs_[0].weights = static_cast<const uint8_t *>(then.weight->data);
    jobs_[0].columns.clear();
    for (size_t i = 0; i < n_rows; ++i) {
        jobs_[0].columns.push_back({&inputs_[i * size_t(s.k)], &scores_[i * size_t(s.n)]});
    }
    multiply(*best_kernels(), s, jobs_, n_threads, memory_, false);
    add_bias(then, size_t(s.n));
    return scores_;
}

void router_ahead::fill_inputs(const ggml_tensor * x, const router & now, const router & then) {
    const auto n    = size_t(x->ne[0]);
    const bool both = now.norm != nullptr && then.norm != nullptr;
    inputs_.resize(n * size_t(x->ne[1]));
    for (int64_t row = 0; row < x->ne[1]; ++row) {
        const auto * from =
            reinterpret_cast<const float *>(static_cast<const uint8_t *>(x->data) + size_t(row) * x->nb[1]);
        float * const to = &inputs_[size_t(row) * n];
        for (size_t i = 0; i < n; ++i) {
            to[i] = both && now.norm[i] != 0.0f ? from[i] / now.norm[i] * then.norm[i] : from[i];
        }
    }
}

void router_ahead::add_bias(const router & r, size_t n_expert) {
    for (size_t at = 0; r.bias != nullptr && at < scores_.size(); at += n_expert) {
        const auto  row  = std::span(scores_).subspan(at, n_expert);
        const float most = std::ranges::max(row);
        float       sum  = 0.0f;
        for (float & x : row) {
            x = r.how == gate::sigmoid ? 1.0f / (1.0f + std::exp(-x)) : r.how == gate::softmax ? std::exp(x - most) : x;
            sum += x;
        }
        for (size_t i = 0; i < n_expert; ++i) {
            row[i] = (r.how == gate::softmax ? row[i] / sum : row[i]) + r.bias[i];
        }
    }
}

} // namespace duo::cpu
