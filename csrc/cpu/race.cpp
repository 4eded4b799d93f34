#include "race.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string_view>

#include <ggml-alloc.h>
#include <ggml-cpp.h>

#include "../error.h"
#include "ggml_buffer.h"
#include "ggml_device.h"
#include "team.h"

namespace duo::cpu {

namespace {

constexpr int64_t n_columns_raced = 2048;
constexpr int64_t n_bytes_raced   = 64 << 20; // of weights: more than most last-level caches leave to one process

double now_us() {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A weight, an input and their product in a graph of one node, on one backend.
class contestant {
  public:
    contestant(ggml_backend_buffer_type_t weights, ggml_backend_dev_t device, int n_threads, ggml_type type,
               int64_t n_columns, int64_t n_rows, int width)
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
            shape_of(ggml_type(t), n_columns_raced, 16)) {
            return ggml_type(t);
        }
    }
    throw error("there are no CPU kernels for weights of type " + name +
                "; choose from q8_0, q4_0, iq4_nl, q4_K, q5_K, "
                "q6_K, bf16, f16");
}

// Both sides with the same weights and inputs.
class pair {
  public:
    pair(ggml_type type, int64_t n_columns, int64_t n_rows, int width, int n_threads) {
        const ggml_backend_buffer_type_t ours = weight_buffer_type();
        if (ours == nullptr) {
            throw error("duo's CPU kernels cannot be used: " + why_no_kernels());
        }
        ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
        const auto         on  = [&](ggml_backend_buffer_type_t buft, ggml_backend_dev_t device) {
            return std::make_unique<contestant>(buft, device, n_threads, type, n_columns, n_rows, width);
        };
        duo = on(ours, ggml_backend_buft_get_device(ours));
        // As libllama chooses for a weight on the CPU.
        auto extra = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
            ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(cpu), "ggml_backend_dev_get_extra_bufts"));
        for (ggml_backend_buffer_type_t * b = extra == nullptr ? nullptr : extra(cpu); b != nullptr && *b != nullptr;
             ++b) {
            stock = on(*b, cpu);
            if (stock->can_run(cpu)) {
                return;
            }
        }
        stock = on(ggml_backend_cpu_buffer_type(), cpu);
    }

    void set(const std::vector<uint8_t> & weight, const std::vector<float> & input) {
        stock->set(weight, input);
        duo->set(weight, input);
    }

    std::unique_ptr<contestant> stock, duo;
};

std::vector<float> gaussian(size_t n, float scale) {
    std::mt19937                    rng(1);
    std::normal_distribution<float> normal;
    std::vector<float>              x(n);
    std::generate(x.begin(), x.end(), [&] { return scale * normal(rng); });
    return x;
}

// Sum of squared differences from the product in double precision, as a share of the product's own.
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

} // namespace

std::vector<std::string> kernel_types() {
    std::vector<std::string> names;
    for (int t = 0; t < GGML_TYPE_COUNT; ++t) {
        if (ggml_blck_size(ggml_type(t)) > 0 && shape_of(ggml_type(t), n_columns_raced, 16)) {
            names.emplace_back(ggml_type_name(ggml_type(t)));
        }
    }
    return names;
}

race_result race(const std::string & name, int width, int n_threads, int64_t n_us) {
    if (width < 1 || width > 512 || n_threads < 1 || n_threads > 512) {
        throw error("a race of " + std::to_string(width) + " inputs and " + std::to_string(n_threads) +
                    " threads cannot be run; give 1 to 512 of both");
    }
    const team_size packing(n_threads);
    const ggml_type type   = type_named(name);
    const auto      row    = int64_t(ggml_row_size(type, n_columns_raced));
    const int64_t   n_rows = n_bytes_raced / row / 64 * 64;
    pair            both(type, n_columns_raced, n_rows, width, n_threads);

    // A few random rows, repeated: making all of them would take longer than the race.
    constexpr int64_t    n_some = 64;
    std::vector<uint8_t> weight(size_t(n_rows * row));
    ggml_quantize_chunk(type, gaussian(size_t(n_some * n_columns_raced), 0.02f).data(), weight.data(), 0, n_some,
                        n_columns_raced, nullptr);
    for (int64_t r = n_some; r < n_rows; r += n_some) {
        std::copy_n(weight.begin(), n_some * row, weight.begin() + r * row);
    }
    both.set(weight, gaussian(size_t(width) * n_columns_raced, 1));

    race_result  r{std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
    const double end = now_us() + double(n_us);
    for (int i = 0; i < 3 || now_us() < end; ++i) { // by turns, so that a disturbance meets both
        const double t_stock = both.stock->time();
        const double t_duo   = both.duo->time();
        if (i > 0) {
            r.stock_us = std::min(r.stock_us, t_stock);
            r.duo_us   = std::min(r.duo_us, t_duo);
        }
    }
    return r;
}

product_error product_errors(const std::string & name, std::string_view weights, int64_t n_columns, int width) {
    const ggml_type type = type_named(name);
    if (n_columns < 1 || n_columns > (1 << 20) || !shape_of(type, n_columns, 1) || width < 1 || width > 512 ||
        weights.empty() || weights.size() % ggml_row_size(type, n_columns) != 0) {
        throw error("these are no rows of " + std::to_string(n_columns) + " weights of type " + name);
    }
    const team_size            packing(1);
    const auto                 n_rows = int64_t(weights.size() / ggml_row_size(type, n_columns));
    const std::vector<uint8_t> bytes(weights.begin(), weights.end());
    const std::vector<float>   input = gaussian(size_t(width * n_columns), 1);
    std::vector<float>         exact(size_t(n_rows * n_columns));
    ggml_get_type_traits(type)->to_float(bytes.data(), exact.data(), n_rows * n_columns);

    pair both(type, n_columns, n_rows, width, 1);
    both.set(bytes, input);
    both.stock->time();
    both.duo->time();
    return {error_of(both.stock->product(), exact, input, size_t(n_columns)),
            error_of(both.duo->product(), exact, input, size_t(n_columns))};
}

} // namespace duo::cpu
