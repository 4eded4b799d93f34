#include "race.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <string_view>

#include "../error.h"
#include "extra_buffers.h"
#include "ggml_buffer.h"
#include "ggml_device.h"
#include "ggml_product.h"
#include "team.h"

namespace duo::cpu {

namespace {

constexpr int64_t n_columns_raced = 2048;
constexpr int64_t n_bytes_raced   = race_bytes; // of weights: more than most last-level caches leave to one process
constexpr int     width_prompt    = 32; // from so many inputs on memory is no limit: a quarter of the matrix does

double now_us() {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double time_of(ggml_product & p) {
    const double t = now_us();
    p.compute();
    return now_us() - t;
}

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
            return std::make_unique<ggml_product>(buft, device, n_threads, type, n_columns, n_rows, width);
        };
        duo = on(ours, ggml_backend_buft_get_device(ours));
        // As libllama chooses for a weight on the CPU.
        for (ggml_backend_buffer_type_t b : allowed_extra_buffers()) {
            stock = on(b, cpu);
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

    std::unique_ptr<ggml_product> stock, duo;
};

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
    const int64_t   share  = width >= width_prompt ? 4 : 1;
    const int64_t   n_rows = n_bytes_raced / share / row / 64 * 64;
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
        const double t_stock = time_of(*both.stock);
        const double t_duo   = time_of(*both.duo);
        if (i > 0) {
            r.stock_us = std::min(r.stock_us, t_stock * double(share));
            r.duo_us   = std::min(r.duo_us, t_duo * double(share));
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
    both.stock->compute();
    both.duo->compute();
    return {error_of(both.stock->product(), exact, input, size_t(n_columns)),
            error_of(both.duo->product(), exact, input, size_t(n_columns))};
}

} // namespace duo::cpu
