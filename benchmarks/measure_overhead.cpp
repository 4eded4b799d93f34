// The cost of choosing tokens: microseconds for one row of logits, without model/top_logits.h and with it.
//
//     g++ -std=c++20 -O3 -I../csrc measure_overhead.cpp ../csrc/model/top_logits.cpp -o measure_overhead &&
//         ./measure_overhead
//
// Uses 64 rows in turn, so that none is in the L2 cache. Prints the lowest and the median time of a row, and the
// difference between the two log-sum-exps.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "model/top_logits.h"
#include "text/sampling.h"

using namespace duo;

namespace {

// The earlier code of llama/sampler.cpp.
namespace before {

token_id argmax(const std::vector<float> & x) {
    return token_id(std::max_element(x.begin(), x.end()) - x.begin());
}

void top_k(const std::vector<float> & x, size_t k, std::vector<top_logit> & out) {
    out.clear();
    for (token_id t = 0; t < token_id(x.size()); ++t) {
        const float logit = x[size_t(t)];
        if (out.size() == k ? !(logit > out.front().logit) : std::isnan(logit)) {
            continue;
        }
        if (out.size() == k) {
            std::pop_heap(out.begin(), out.end(), better);
            out.pop_back();
        }
        out.push_back({t, logit});
        std::push_heap(out.begin(), out.end(), better);
    }
    std::sort_heap(out.begin(), out.end(), better);
}

double log_sum_exp(const std::vector<float> & x) {
    const float max = *std::max_element(x.begin(), x.end());
    double      sum = 0.0;
    for (const float logit : x) {
        if (logit > max - 20.0f) {
            sum += std::exp(double(logit - max));
        }
    }
    return double(max) + std::log(sum);
}

} // namespace before

// A normal distribution of this spread around 0, plus a few logits far above it, like a fairly confident model.
std::vector<float> make_row(int32_t n, uint64_t i_row, float spread) {
    std::vector<float> x(static_cast<size_t>(n));
    for (int32_t t = 0; t < n; ++t) {
        const double u = noise_uniform(1, i_row, uint64_t(t));
        const double v = noise_uniform(2, i_row, uint64_t(t));
        x[size_t(t)]   = spread * float(std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307 * v));
    }
    for (uint64_t i = 0; i < 20; ++i) {
        x[size_t(noise_uniform(3, i_row, i) * n)] += 12.0f * float(noise_uniform(4, i_row, i));
    }
    return x;
}

struct time_us {
    double lowest, median;
};

template <typename F> time_us time_of(const std::vector<std::vector<float>> & rows, F && f) {
    std::vector<double> us;
    for (int round = 0; round < 8; ++round) {
        for (const std::vector<float> & row : rows) {
            const auto t0 = std::chrono::steady_clock::now();
            f(row);
            us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - t0).count());
        }
    }
    std::sort(us.begin(), us.end());
    return {us.front(), us[us.size() / 2]};
}

volatile double seen = 0.0; // so that nothing is optimised away

void measure(int32_t n, float spread) {
    std::vector<std::vector<float>> rows;
    for (uint64_t i = 0; i < 64; ++i) {
        rows.push_back(make_row(n, i, spread));
    }
    logit_row              row;
    std::vector<top_logit> top;
    const auto             line = [&](const char * what, auto && old_way, auto && new_way) {
        const time_us a = time_of(rows, old_way);
        const time_us b = time_of(rows, new_way);
        std::printf("%7d  %6.1f  %-22s %8.1f %8.1f   %8.1f %8.1f\n", n, double(spread), what, a.lowest, a.median,
                                b.lowest, b.median);
    };
    const auto read = [&](const std::vector<float> & x) { row.read(x.data(), n); };
    line(
        "argmax", [&](const auto & x) { seen = before::argmax(x); },
        [&](const auto & x) {
            read(x);
            seen = row.argmax();
        });
    line(
        "top 5, log-sum-exp",
        [&](const auto & x) {
            before::top_k(x, 5, top);
            seen = before::log_sum_exp(x);
        },
        [&](const auto & x) {
            read(x);
            row.top_k(5, top);
            seen = row.log_sum_exp();
        });
    line(
        "top 40", [&](const auto & x) { before::top_k(x, 40, top); },
        [&](const auto & x) {
            read(x);
            row.top_k(40, top);
        });
    double apart = 0.0;
    for (const std::vector<float> & x : rows) {
        read(x);
        apart = std::max(apart, std::abs(row.log_sum_exp() - before::log_sum_exp(x)));
    }
    std::printf("%7d  %6.1f  log-sum-exps are at most %.1e apart\n", n, double(spread), apart);
}

} // namespace

int main() {
    std::printf(" logits  spread  us for a row               before:      median   now:        median\n");
    for (const int32_t n : {32000, 128256}) {
        for (const float spread : {2.0f, 4.0f}) {
            measure(n, spread);
        }
    }
}
