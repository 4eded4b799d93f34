#include "ggml_compute.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "attention.h"
#include "ggml_buffer.h"
#include "repack.h"
#include "requantise.h"

namespace duo::cpu {

namespace {

thread_local int64_t      n_computed = 0;
thread_local experts_read experts;
thread_local cell_order * order_now = nullptr; // see set_cell_order

thread_local page_reader *      pages_now = nullptr; // see set_page_reader
thread_local experts_ahead *    ahead_now = nullptr; // see set_experts_ahead
thread_local const row_choice * rows_now  = nullptr; // see choose_rows
thread_local bool               skips_now = false;   // see skip_products

// The parameters as ggml_flash_attn_ext stores them in the node.
struct attention_params {
    float scale, max_bias, softcap;
    explicit attention_params(const ggml_tensor * node) { std::memcpy(this, node->op_params, sizeof *this); }
};

template <class T> T * at(const ggml_tensor * t, int64_t i1, int64_t i2, int64_t i3) {
    return reinterpret_cast<T *>(static_cast<uint8_t *>(t->data) + size_t(i1) * t->nb[1] + size_t(i2) * t->nb[2] +
                                 size_t(i3) * t->nb[3]);
}

// No two neighbours are equal and no sum is zero, so no norm, variance or sum that a graph divides by is zero either.
// NaN would stay in the cells.
void fill_with_small_numbers(const ggml_tensor * t) {
    for (int64_t i3 = 0; i3 < t->ne[3]; ++i3) {
        for (int64_t i2 = 0; i2 < t->ne[2]; ++i2) {
            for (int64_t i1 = 0; i1 < t->ne[1]; ++i1) {
                float * const row = at<float>(t, i1, i2, i3);
                for (int64_t i = 0; i < t->ne[0]; ++i) {
                    row[i] = float(1 + i % 2) / 1024;
                }
            }
        }
    }
}

} // namespace

int64_t n_attentions() {
    return n_computed;
}

const experts_read & read_of_experts() {
    return experts;
}

cell_order * set_cell_order(cell_order * order) {
    return std::exchange(order_now, order);
}

page_reader * set_page_reader(page_reader * pages) {
    return std::exchange(pages_now, pages);
}

experts_ahead * set_experts_ahead(experts_ahead * ahead) {
    return std::exchange(ahead_now, ahead);
}

choose_rows::choose_rows(const row_choice * rows) : before_(std::exchange(rows_now, rows)) {
}

choose_rows::~choose_rows() {
    rows_now = before_;
}

skip_products::skip_products(bool skip) : before_(std::exchange(skips_now, skip)) {
}

skip_products::~skip_products() {
    skips_now = before_;
}

ggml_status backend::compute(ggml_cgraph * graph) {
    try {
        for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
            // libllama's graphs have branches that a pass leaves out (ggml_build_forward_select). Their inputs are not
            // set.
            if (ggml_tensor * const node = ggml_graph_node(graph, i); (node->flags & GGML_TENSOR_FLAG_COMPUTE) != 0) {
                compute(node);
            }
        }
    } catch (const std::bad_alloc &) {
        forget();
        return GGML_STATUS_ALLOC_FAILED;
    }
    return GGML_STATUS_SUCCESS;
}

void backend::forget() {
    input_ = nullptr;
    users_.clear();
}

void backend::compute(ggml_tensor * node) {
    switch (node->op) {
        case GGML_OP_MUL_MAT:
            return skips_now ? fill_with_small_numbers(node) : multiply_matrix(node);
        case GGML_OP_MUL_MAT_ID:
            return skips_now ? fill_with_small_numbers(node) : multiply_experts(node);
        case GGML_OP_GET_ROWS:
            return get_rows(node);
        case GGML_OP_FLASH_ATTN_EXT:
            return attend_cells(node);
        default:
            return; // views need no work
    }
}

// Q, K and V, or gate and up, read the same tensor, which is prepared for the first of them. The others can use that
// only if their formats prepare it in the same way: with tiles Q6_K does not, and V often is Q6_K where Q and K are
// Q4_K. A run of the graph writes a tensor once, so the prepared input is stale only when the same node comes again (in
// the next run).
bool backend::is_prepared(const ggml_tensor * node, prepare_fn by) {
    const ggml_tensor * x    = node->src[1];
    const bool          same = input_ == x && data_ == x->data && by_ == by && n_ == ggml_nelements(x) &&
                      std::find(users_.begin(), users_.end(), node) == users_.end();
    if (!same) {
        users_.clear();
    }
    input_ = x;
    data_  = x->data;
    by_    = by;
    n_     = ggml_nelements(x);
    users_.push_back(node);
    return same;
}

void backend::multiply_matrix(ggml_tensor * node) {
    const ggml_tensor * w = node->src[0];
    const ggml_tensor * x = node->src[1];
    const matrix_shape  s = shape_of(w);
    if (pages_now != nullptr) {
        pages_now->before_matrix(static_cast<const uint8_t *>(w->data), s.bytes());
    }
    jobs_.resize(1);
    jobs_[0].weights = static_cast<const uint8_t *>(w->data);
    jobs_[0].columns.clear();
    for (int64_t i3 = 0; i3 < x->ne[3]; ++i3) {
        for (int64_t i2 = 0; i2 < x->ne[2]; ++i2) {
            for (int64_t i1 = 0; i1 < x->ne[1]; ++i1) {
                jobs_[0].columns.push_back({at<const float>(x, i1, i2, i3), at<float>(node, i1, i2, i3)});
            }
        }
    }
    jobs_[0].only = {};
    if (rows_now != nullptr && rows_now->n_rows == s.n && rows_now->weight == w->name) {
        jobs_[0].only = rows_now->runs;
        for (const column & c : jobs_[0].columns) {
            std::fill_n(c.y, s.n, -std::numeric_limits<float>::infinity());
        }
    }
    const prepare_fn by = best_kernels()->prepare_of(s.f, int(jobs_[0].columns.size()));
    multiply(*best_kernels(), s, jobs_, n_threads, memory_, is_prepared(node, by));
    if (ahead_now != nullptr && ahead_now->active() && routers_.on_product(node)) {
        foresee(node);
    }
}

void backend::foresee(const ggml_tensor * router) {
    const int32_t next = ahead_now->layer_after(routers_.layer(), size_t(router->src[1]->ne[1]));
    if (next >= 0) {
        const auto said = routers_.next(router, n_threads);
        if (!said.empty()) {
            ahead_now->hear_router(next, said);
        }
    }
}

void backend::multiply_experts(ggml_tensor * node) {
    const ggml_tensor * w   = node->src[0];
    const ggml_tensor * x   = node->src[1];
    const ggml_tensor * ids = node->src[2];
    const matrix_shape  s   = shape_of(w);
    jobs_.resize(size_t(w->ne[2]));
    for (size_t e = 0; e < jobs_.size(); ++e) {
        jobs_[e].weights = static_cast<const uint8_t *>(w->data) + e * s.bytes();
        jobs_[e].columns.clear();
        jobs_[e].only = {};
    }
    const bool tells = ahead_now != nullptr && ahead_now->active();
    ids_.clear();
    for (int64_t token = 0; token < ids->ne[1]; ++token) {
        for (int64_t slot = 0; slot < ids->ne[0]; ++slot) {
            const auto e = *reinterpret_cast<const int32_t *>(static_cast<const uint8_t *>(ids->data) +
                                                              size_t(slot) * ids->nb[0] + size_t(token) * ids->nb[1]);
            GGML_ASSERT(e >= 0 && e < w->ne[2]);
            if (tells) {
                ids_.push_back(e);
            }
            jobs_[size_t(e)].columns.push_back(
                {at<const float>(x, slot % x->ne[1], token, 0), at<float>(node, slot, token, 0)});
        }
    }
    std::erase_if(jobs_, [](const job & j) { return j.columns.empty(); });
    if (pages_now != nullptr) {
        const auto * const first = static_cast<const uint8_t *>(w->data);
        chosen_.clear();
        for (const job & j : jobs_) {
            chosen_.push_back(int32_t(size_t(j.weights - first) / s.bytes()));
        }
        pages_now->before_experts(first, s.bytes(), ids, chosen_);
        if (tells) {
            tell_experts(node);
        }
    }
    ++experts.n_products;
    experts.n_experts += std::ssize(jobs_);
    experts.n_bytes += std::ssize(jobs_) * int64_t(s.bytes());
    forget();
    multiply(*best_kernels(), s, jobs_, n_threads, memory_, false);
}

void backend::tell_experts(const ggml_tensor * node) {
    routers_.on_experts(node, ahead_now->layer_now());
    ahead_now->before_experts({.experts = ids_, .n_used = int32_t(node->src[2]->ne[0])}, int32_t(node->src[0]->ne[2]));
}

// The token embeddings, if they are also the output matrix.
void backend::get_rows(ggml_tensor * node) {
    const ggml_tensor *  w   = node->src[0];
    const ggml_tensor *  ids = node->src[1];
    const matrix_shape   s   = shape_of(w);
    std::vector<uint8_t> row(file_row(s));
    for (int64_t i = 0; i < ids->ne[0]; ++i) {
        const auto id =
            *reinterpret_cast<const int32_t *>(static_cast<const uint8_t *>(ids->data) + size_t(i) * ids->nb[0]);
        GGML_ASSERT(id >= 0 && id < s.n);
        unpack_row(s, static_cast<const uint8_t *>(w->data), id, row.data());
        to_floats(stored_type(w), row.data(), s.k, at<float>(node, i, 0, 0));
    }
}

void backend::attend_cells(ggml_tensor * node) {
    const ggml_tensor *    q     = node->src[0];
    const ggml_tensor *    k     = node->src[1];
    const ggml_tensor *    v     = node->src[2];
    const ggml_tensor *    mask  = node->src[3];
    const ggml_tensor *    sinks = node->src[4];
    const attention_params p(node);
    attention              a{};
    a.n_k        = k->ne[0];
    a.n_v        = v->ne[0];
    a.n_cells    = k->ne[1];
    a.n_tokens   = q->ne[1];
    a.n_heads    = q->ne[2];
    a.n_kv_heads = k->ne[2];
    a.q          = static_cast<const uint8_t *>(q->data);
    a.k          = static_cast<const uint8_t *>(k->data);
    a.v          = static_cast<const uint8_t *>(v->data);
    a.mask       = mask == nullptr ? nullptr : static_cast<const uint8_t *>(mask->data);
    a.stride     = {.q_token    = q->nb[1],
                    .q_head     = q->nb[2],
                    .k_cell     = k->nb[1],
                    .k_head     = k->nb[2],
                    .v_cell     = v->nb[1],
                    .v_head     = v->nb[2],
                    .mask_token = mask == nullptr ? 0 : mask->nb[1]};
    a.sinks      = sinks == nullptr ? nullptr : static_cast<const float *>(sinks->data);
    a.out        = static_cast<float *>(node->data);
    a.scale      = p.scale;
    a.softcap    = p.softcap;
    a.max_bias   = p.max_bias;
    if (order_now != nullptr && k->view_src != nullptr) {
        const auto cells = order_now->cells(k->view_src, a.n_cells);
        const auto texts = order_now->texts(a.n_tokens);
        a.order          = cells.empty() ? nullptr : cells.data();
        a.texts          = texts.empty() ? nullptr : texts.data();
    }
    attend(*best_kernels(), a, n_threads, scores_);
    ++n_computed;
}
} // namespace duo::cpu
