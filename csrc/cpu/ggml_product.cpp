#include "ggml_product.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include <ggml-alloc.h>

#include "base/error.h"
#include "evict.h"
#include "ggml_buffer.h"

namespace duo::cpu {

namespace {

ggml_context_ptr new_context() {
    return ggml_context_ptr(ggml_init({ggml_tensor_overhead() * 8 + ggml_graph_overhead(), nullptr, true}));
}

error no_memory() {
    return error(error_kind::does_not_fit,
                 "there is not enough memory to measure the CPU kernels; give --cpu-kernels duo or stock");
}

} // namespace

ggml_product::ggml_product(ggml_backend_buffer_type_t weights, ggml_backend_dev_t device, int n_threads, ggml_type type,
                           int64_t n_columns, int64_t n_rows, int width)
    : device_(device), weight_(std::make_shared<matrix>()) {
    weight_->context = new_context();
    weight_->tensor  = ggml_new_tensor_2d(weight_->context.get(), type, n_columns, n_rows);
    weight_->buffer.reset(ggml_backend_alloc_ctx_tensors_from_buft(weight_->context.get(), weights));
    if (!weight_->buffer) {
        throw no_memory();
    }
    build(n_threads, width);
}

ggml_product::ggml_product(const ggml_product & other, int n_threads, int width)
    : device_(other.device_), weight_(other.weight_) {
    build(n_threads, width);
}

void ggml_product::build(int n_threads, int width) {
    backend_.reset(ggml_backend_dev_init(device_, nullptr));
    context_ = new_context();
    input_   = ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, weight_->tensor->ne[0], width);
    graph_   = ggml_new_graph(context_.get());
    product_ = ggml_mul_mat(context_.get(), weight_->tensor, input_);
    ggml_build_forward_expand(graph_, product_);
    rest_.reset(ggml_backend_alloc_ctx_tensors_from_buft(context_.get(), ggml_backend_cpu_buffer_type()));
    if (!backend_ || !rest_) {
        throw no_memory();
    }
    auto set = reinterpret_cast<ggml_backend_set_n_threads_t>(
        ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device_), "ggml_backend_set_n_threads"));
    set(backend_.get(), n_threads);
}

bool ggml_product::can_run(ggml_backend_dev_t device) const {
    return ggml_backend_dev_supports_op(device, product_);
}

void ggml_product::set(const std::vector<uint8_t> & weight, const std::vector<float> & input) {
    ggml_backend_tensor_set(weight_->tensor, weight.data(), 0, weight.size());
    set_input(input);
}

void ggml_product::set_input(const std::vector<float> & input) {
    ggml_backend_tensor_set(input_, input.data(), 0, input.size() * sizeof(float));
}

void ggml_product::compute() {
    ggml_backend_graph_compute(backend_.get(), graph_);
}

void ggml_product::evict_weights() const {
    const ggml_backend_buffer_t b = weight_->buffer.get();
    evict(ggml_backend_buffer_get_base(b), ggml_backend_buffer_get_size(b));
}

std::vector<float> ggml_product::product() const {
    std::vector<float> out(size_t(ggml_nelements(product_)));
    ggml_backend_tensor_get(product_, out.data(), 0, out.size() * sizeof(float));
    return out;
}

std::vector<float> gaussian(size_t n, float scale) {
    std::mt19937                    rng(1);
    std::normal_distribution<float> normal;
    std::vector<float>              x(n);
    std::generate(x.begin(), x.end(), [&] { return scale * normal(rng); });
    return x;
}

std::vector<uint8_t> some_rows(ggml_type type, int64_t n_rows, int64_t n_columns) {
    const auto           shape = shape_of(type, n_columns, n_rows);
    std::vector<uint8_t> rows(size_t(n_rows) * ggml_row_size(type, n_columns));
    if (!shape || !has_codebook(shape->f)) {
        ggml_quantize_chunk(type, gaussian(size_t(n_rows * n_columns), 0.02f).data(), rows.data(), 0, n_rows, n_columns,
                            nullptr);
        return rows;
    }
    std::mt19937 rng(1);
    std::generate(rows.begin(), rows.end(), [&] { return uint8_t(rng()); });
    const uint16_t scale = ggml_fp32_to_fp16(0.001f);
    for (size_t i = 0; i < rows.size(); i += ggml_type_size(type)) {
        if (type != GGML_TYPE_IQ1_M) { // a block begins with it
            std::memcpy(&rows[i], &scale, sizeof scale);
            continue;
        }
        for (size_t j = 0; j < 4; ++j) { // four bits each in the last bytes
            uint8_t & to = rows[i + 49 + 2 * j];
            to           = uint8_t((to & 15) | (((scale >> (4 * j)) & 15) << 4));
        }
    }
    return rows;
}

double error_of(const std::vector<float> & got, const std::vector<float> & weights, const std::vector<float> & input,
                size_t n_columns) {
    const size_t n_rows = weights.size() / n_columns;
    double       wrong  = 0;
    double       all    = 0;
    for (size_t i = 0; i < got.size(); ++i) {
        const float * w    = weights.data() + i % n_rows * n_columns;
        const float * x    = input.data() + i / n_rows * n_columns;
        double        want = 0;
        for (size_t k = 0; k < n_columns; ++k) {
            want += double(w[k]) * double(x[k]);
        }
        wrong += std::pow(double(got[i]) - want, 2);
        all += want * want;
    }
    return all > 0 ? wrong / all : 0;
}

} // namespace duo::cpu
