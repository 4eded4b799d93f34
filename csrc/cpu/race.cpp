#include "race.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <random>

#include <ggml-alloc.h>
#include <ggml-cpp.h>

#include "../error.h"
#include "ggml_buffer.h"
#include "ggml_device.h"

namespace duo::cpu {

namespace {

constexpr int64_t n_columns = 2048;
constexpr int64_t n_bytes   = 64 << 20; // of weights: more than most last-level caches leave to one process

double now_us() {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A weight, an input and their product in a graph of one node, on one backend.
class contestant {
  public:
    contestant(ggml_backend_buffer_type_t weights, ggml_backend_dev_t device, int n_threads, ggml_type type,
               int64_t n_rows, int width)
        : backend_(ggml_backend_dev_init(device, nullptr)) {
        ggml_init_params params{ggml_tensor_overhead() * 8 + ggml_graph_overhead(), nullptr, true};
        weight_context_.reset(ggml_init(params));
        context_.reset(ggml_init(params));
        weight_ = ggml_new_tensor_2d(weight_context_.get(), type, n_columns, n_rows);
        input_  = ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, n_columns, width);
        weights_.reset(ggml_backend_alloc_ctx_tensors_from_buft(weight_context_.get(), weights));
        graph_   = ggml_new_graph(context_.get());
        product_ = ggml_mul_mat(context_.get(), weight_, input_);
        ggml_build_forward_expand(graph_, product_);
        rest_.reset(ggml_backend_alloc_ctx_tensors_from_buft(context_.get(), ggml_backend_cpu_buffer_type()));
        if (!backend_ || !weights_ || !rest_) {
            throw error("there is no memory to measure the CPU kernels; give --cpu-kernels duo or stock");
        }
        auto set = reinterpret_cast<ggml_backend_set_n_threads_t>(
            ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), "ggml_backend_set_n_threads"));
        set(backend_.get(), n_threads);
    }

    void set(const std::vector<uint8_t> & weight, const std::vector<float> & input) {
        ggml_backend_tensor_set(weight_, weight.data(), 0, weight.size());
        ggml_backend_tensor_set(input_, input.data(), 0, input.size() * sizeof(float));
    }

    double time() {
        const double t = now_us();
        ggml_backend_graph_compute(backend_.get(), graph_);
        return now_us() - t;
    }

    std::vector<float> product() const {
        std::vector<float> out(size_t(ggml_nelements(product_)));
        ggml_backend_tensor_get(product_, out.data(), 0, out.size() * sizeof(float));
        return out;
    }

    [[nodiscard]] bool can_run(ggml_backend_dev_t device) const {
        return ggml_backend_dev_supports_op(device, product_);
    }

  private:
    ggml_backend_ptr        backend_;
    ggml_context_ptr        weight_context_, context_;
    ggml_backend_buffer_ptr weights_, rest_;
    ggml_tensor *           weight_  = nullptr;
    ggml_tensor *           input_   = nullptr;
    ggml_tensor *           product_ = nullptr;
    ggml_cgraph *           graph_   = nullptr;
};

ggml_type type_named(const std::string & name) {
    for (int t = 0; t < GGML_TYPE_COUNT; ++t) {
        if (ggml_type_name(ggml_type(t)) != nullptr && name == ggml_type_name(ggml_type(t)) &&
            shape_of(ggml_type(t), n_columns, 16)) {
            return ggml_type(t);
        }
    }
    throw error("there are no CPU kernels for weights of type " + name +
                "; choose from q8_0, q4_0, iq4_nl, q4_K, q5_K, "
                "q6_K, bf16, f16");
}

// As libllama chooses for a weight on the CPU.
std::unique_ptr<contestant> stock(ggml_backend_dev_t cpu, int n_threads, ggml_type type, int64_t n_rows, int width) {
    auto extra = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
        ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(cpu), "ggml_backend_dev_get_extra_bufts"));
    for (ggml_backend_buffer_type_t * b = extra == nullptr ? nullptr : extra(cpu); b != nullptr && *b != nullptr; ++b) {
        auto c = std::make_unique<contestant>(*b, cpu, n_threads, type, n_rows, width);
        if (c->can_run(cpu)) {
            return c;
        }
    }
    return std::make_unique<contestant>(ggml_backend_cpu_buffer_type(), cpu, n_threads, type, n_rows, width);
}

// Sum of squared differences from the product in double precision, over some rows, as a share of the product's.
double error_of(const std::vector<float> & got, const std::vector<float> & weights, const std::vector<float> & input,
                int64_t n_rows, int64_t n_some, int width) {
    double wrong = 0;
    double all   = 0;
    for (int64_t row = 0; row < n_some; ++row) {
        for (int c = 0; c < width; ++c) {
            double want = 0;
            for (int64_t i = 0; i < n_columns; ++i) {
                want += double(weights[size_t(row * n_columns + i)]) * double(input[size_t(c * n_columns + i)]);
            }
            wrong += std::pow(double(got[size_t(c * n_rows + row)]) - want, 2);
            all += want * want;
        }
    }
    return wrong / all;
}

} // namespace

std::vector<std::string> kernel_types() {
    std::vector<std::string> names;
    for (int t = 0; t < GGML_TYPE_COUNT; ++t) {
        if (ggml_blck_size(ggml_type(t)) > 0 && shape_of(ggml_type(t), n_columns, 16)) {
            names.emplace_back(ggml_type_name(ggml_type(t)));
        }
    }
    return names;
}

race_result race(const std::string & name, int width, int n_threads, int64_t n_us) {
    const ggml_backend_buffer_type_t ours = weight_buffer_type();
    if (ours == nullptr) {
        throw error("duo's CPU kernels cannot be used: " + why_no_kernels());
    }
    if (width < 1 || width > 512 || n_threads < 1 || n_threads > 512) {
        throw error("a race of " + std::to_string(width) + " inputs and " + std::to_string(n_threads) +
                    " threads cannot be run; give 1 to 512 of both");
    }
    const ggml_type type   = type_named(name);
    const auto      row    = int64_t(ggml_row_size(type, n_columns));
    const int64_t   n_rows = n_bytes / row / 64 * 64;

    // A few random rows, repeated: making 24 MB of K-quants would take longer than the race.
    constexpr int64_t               n_some = 64;
    std::mt19937                    rng(1);
    std::normal_distribution<float> normal;
    std::vector<float>              some(size_t(n_some * n_columns));
    std::vector<float>              input(size_t(width) * n_columns);
    std::generate(some.begin(), some.end(), [&] { return 0.02f * normal(rng); });
    std::generate(input.begin(), input.end(), [&] { return normal(rng); });
    std::vector<uint8_t> weight(size_t(n_rows * row));
    ggml_quantize_chunk(type, some.data(), weight.data(), 0, n_some, n_columns, nullptr);
    for (int64_t r = n_some; r < n_rows; r += n_some) {
        std::copy_n(weight.begin(), n_some * row, weight.begin() + r * row);
    }
    ggml_get_type_traits(type)->to_float(weight.data(), some.data(), n_some * n_columns);

    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    const auto         a   = stock(cpu, n_threads, type, n_rows, width);
    contestant         b(ours, ggml_backend_buft_get_device(ours), n_threads, type, n_rows, width);
    a->set(weight, input);
    b.set(weight, input);

    race_result  r{std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(), 0, 0};
    const double end = now_us() + double(n_us);
    for (int i = 0; i < 3 || now_us() < end; ++i) { // by turns, so that a disturbance meets both
        const double t_stock = a->time();
        const double t_duo   = b.time();
        if (i > 0) {
            r.stock_us = std::min(r.stock_us, t_stock);
            r.duo_us   = std::min(r.duo_us, t_duo);
        }
    }
    r.error       = error_of(b.product(), some, input, n_rows, n_some, width);
    r.stock_error = error_of(a->product(), some, input, n_rows, n_some, width);
    return r;
}

} // namespace duo::cpu
