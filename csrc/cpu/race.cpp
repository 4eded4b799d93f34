#include "race.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <memory>
#include <string_view>

#include "base/error.h"
#include "evict.h"
#include "extra_buffers.h"
#include "ggml_buffer.h"
#include "ggml_device.h"
#include "ggml_product.h"
#include "ggml_tiles.h"
#include "product.h"
#include "requantise.h"
#include "team.h"

namespace duo::cpu {

namespace {

constexpr int64_t n_columns_raced = 2048;
constexpr int     n_prompt_width  = 32; // inputs; from here on arithmetic is the limit, so a part of the rows is enough
constexpr int     n_prompt_share  = 8;
constexpr int     n_evicted_share = 2; // of the rows, if they can be evicted: any number then comes from main memory

double now_us() {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Weights come from main memory, as those of a large model do: some servers have 480 MB of third-level cache, which
// would keep a race's matrix.
double time_of(ggml_product & p) {
    if (can_evict()) {
        p.evict_weights();
    }
    const double t = now_us();
    p.compute();
    return now_us() - t;
}

ggml_type raced_type(const std::string & name) {
    const ggml_type t = type_named(name);
    if (t != GGML_TYPE_COUNT && shape_of(t, n_columns_raced, 16)) {
        return t;
    }
    throw error(error_kind::bad_value, "duo has no CPU kernels for weights of type " + name +
                                           "; choose from q8_0, q4_0, q4_1, q5_0, q5_1, iq4_nl, mxfp4, q2_K, "
                                           "q3_K, q4_K, q5_K, q6_K, iq4_xs, iq2_xxs, iq2_xs, iq2_s, iq3_xxs, "
                                           "iq3_s, iq1_s, iq1_m, tq1_0, tq2_0, bf16, f16, f32");
}

// Both sides with the same weights and inputs.
class pair {
  public:
    pair(ggml_type type, int64_t n_columns, int64_t n_rows, int width, int n_threads) {
        const ggml_backend_buffer_type_t ours = weight_buffer_type();
        if (ours == nullptr) {
            throw error(error_kind::bad_value, "duo's CPU kernels cannot be used: " + why_no_kernels());
        }
        if (!learn_ggml_tiles()) {
            throw error(error_kind::does_not_fit, "there is too little memory to measure the CPU kernels, or the "
                                                  "system starts no more threads; give --cpu-kernels duo or stock");
        }
        ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
        const auto         on  = [&](ggml_backend_buffer_type_t buft, ggml_backend_dev_t device) {
            return std::make_unique<ggml_product>(buft, device, n_threads, type, n_columns, n_rows, width);
        };
        duo = on(ours, ggml_backend_buft_get_device(ours));
        // Libllama's choice for a weight on the CPU.
        for (ggml_backend_buffer_type_t b : allowed_extra_buffers()) {
            stock = on(b, cpu);
            if (stock->can_run(cpu)) {
                return;
            }
        }
        stock = on(ggml_backend_cpu_buffer_type(), cpu);
    }

    // The same weights.
    pair(const pair & other, int width, int n_threads)
        : stock(std::make_unique<ggml_product>(*other.stock, n_threads, width)),
          duo(std::make_unique<ggml_product>(*other.duo, n_threads, width)) {
        const std::vector<float> input = gaussian(size_t(width) * n_columns_raced, 1);
        stock->set_input(input);
        duo->set_input(input);
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

namespace {

// A few random rows, repeated: making all of them would take longer than the race.
std::vector<uint8_t> some_weights(ggml_type type, int64_t n_rows) {
    constexpr int64_t    n_some = 64;
    const auto           row    = int64_t(ggml_row_size(type, n_columns_raced));
    std::vector<uint8_t> weight(size_t(n_rows * row));
    std::ranges::copy(some_rows(type, n_some, n_columns_raced), weight.begin());
    for (int64_t r = n_some; r < n_rows; r += n_some) {
        std::copy_n(weight.begin(), std::min(n_some, n_rows - r) * row, weight.begin() + r * row);
    }
    return weight;
}

// The prefetch distance with the fastest reading. A distance other than the usual one must win clearly, in most rounds:
// real differences are large, and noise must not decide.
int best_ahead(format f, ggml_product & duo) {
    constexpr std::array distances = {n_ahead_usual, 0, n_ahead_usual / 4, n_ahead_usual * 2};
    constexpr int        n_rounds  = 12;
    constexpr int        n_enough  = 7;
    constexpr double     margin    = 0.97;

    std::array<double, distances.size()> best;
    std::array<int, distances.size()>    n_won{};
    best.fill(std::numeric_limits<double>::infinity());
    for (int round = 0; round <= n_rounds; ++round) {
        double usual = 0;
        for (size_t i = 0; i < distances.size(); ++i) {
            set_read_ahead(f, distances[i]);
            const double t = time_of(duo);
            usual          = i == 0 ? t : usual;
            if (round > 0) { // in the first round pages are cold
                best[i] = std::min(best[i], t);
                n_won[i] += t < margin * usual ? 1 : 0;
            }
        }
    }
    const auto fastest = size_t(std::min_element(best.begin(), best.end()) - best.begin());
    return best[fastest] < margin * best[0] && n_won[fastest] >= n_enough ? distances[fastest] : distances[0];
}

// Best times of each pair. The pairs take turns, so a disturbance affects all of them alike, and each has many
// undisturbed chances.
std::vector<race_time> time_all(const std::vector<pair> & pairs, int64_t n_us) {
    constexpr double       never = std::numeric_limits<double>::infinity();
    std::vector<race_time> best(pairs.size(), {never, never});
    double                 spent = 0; // on products, not on evicting
    for (int round = 0; round < 3 || spent < double(n_us); ++round) {
        for (size_t i = 0; i < pairs.size(); ++i) {
            const double t_stock = time_of(*pairs[i].stock);
            const double t_duo   = time_of(*pairs[i].duo);
            spent += t_stock + t_duo;
            if (round > 0) {
                best[i] = {std::min(best[i].stock_us, t_stock), std::min(best[i].duo_us, t_duo)};
            }
        }
    }
    return best;
}

} // namespace

std::vector<team_race> race(const std::string & name, const std::vector<int> & widths, const std::vector<int> & teams,
                            int64_t n_us) {
    const auto bad = [](int n) { return n < 1 || n > 512; };
    if (widths.empty() || teams.empty() || std::any_of(widths.begin(), widths.end(), bad) ||
        std::any_of(teams.begin(), teams.end(), bad)) {
        throw error(error_kind::bad_value, "a race needs numbers of inputs and of threads from 1 to 512");
    }
    const team_size packing(*std::ranges::max_element(teams)); // otherwise a thread for each processor packs
    const ggml_type type   = raced_type(name);
    const format    f      = shape_of(type, n_columns_raced, 16)->f;
    const int64_t   n_all  = race_bytes / int64_t(ggml_row_size(type, n_columns_raced)) / 512 * 512;
    const int64_t   n_few  = n_all / n_prompt_share;
    const int       share  = can_evict() ? n_evicted_share : 1;
    const int64_t   n_rows = n_all / share;

    pair                       all(type, n_columns_raced, n_rows, 1, 1);
    pair                       few(type, n_columns_raced, n_few, 1, 1);
    const std::vector<uint8_t> weights = some_weights(type, n_rows);
    all.set(weights, gaussian(n_columns_raced, 1));
    few.set(some_weights(type, n_few), gaussian(n_columns_raced, 1));

    std::vector<team_race> found;
    for (const int n_threads : teams) {
        restore_ggml_tiles(n_threads);
        const pair one(all, 1, n_threads);
        const int  ahead = best_ahead(f, *one.duo);
        set_read_ahead(f, ahead);
        std::vector<pair> pairs;
        for (const int width : widths) {
            pairs.emplace_back(width < n_prompt_width ? all : few, width, n_threads);
        }
        std::vector<race_time> times = time_all(pairs, n_us * int64_t(widths.size()));
        for (size_t i = 0; i < widths.size(); ++i) {
            const int n = widths[i] < n_prompt_width ? share : n_prompt_share;
            times[i].stock_us *= n;
            times[i].duo_us *= n;
        }
        found.push_back({ahead, std::move(times)});
    }
    return found;
}

void read_ahead_of(const std::string & type, int n_bytes) {
    set_read_ahead(shape_of(raced_type(type), n_columns_raced, 16)->f, n_bytes);
}

product_error product_errors(const std::string & name, std::string_view weights, int64_t n_columns, int width) {
    const ggml_type type = raced_type(name);
    if (n_columns < 1 || n_columns > (1 << 20) || !shape_of(type, n_columns, 1) || width < 1 || width > 512 ||
        weights.empty() || weights.size() % ggml_row_size(type, n_columns) != 0) {
        throw error(error_kind::bad_value, "the data is not a number of whole rows of " + std::to_string(n_columns) +
                                               " weights of type " + name);
    }
    const team_size            packing(1);
    const auto                 n_rows = int64_t(weights.size() / ggml_row_size(type, n_columns));
    const std::vector<uint8_t> bytes(weights.begin(), weights.end());
    const std::vector<float>   input = gaussian(size_t(width * n_columns), 1);
    std::vector<float>         exact(size_t(n_rows * n_columns));
    to_floats(type, bytes.data(), n_rows * n_columns, exact.data());

    pair both(type, n_columns, n_rows, width, 1);
    both.set(bytes, input);
    restore_ggml_tiles(1);
    both.stock->compute();
    both.duo->compute();
    return {error_of(both.stock->product(), exact, input, size_t(n_columns)),
            error_of(both.duo->product(), exact, input, size_t(n_columns))};
}

} // namespace duo::cpu
