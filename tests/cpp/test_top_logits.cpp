// The best logits are those of a stable sort, their sum is that in double precision, whatever the row holds.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "model/top_logits.h"
#include "random.h"

using namespace duo;
using duo_test::dice;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan      = std::numeric_limits<float>::quiet_NaN();

constexpr std::array sizes{1, 7, 63, 64, 65, 1000, 32000, 128256};

float gaussian(dice & d) {
    const double u = (double(d.next() >> 11) + 0.5) * 0x1.0p-53;
    return float(std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307 * double(d.next() >> 11) * 0x1.0p-53));
}

template <typename F> std::vector<float> row_of(int32_t n, F && f) {
    std::vector<float> x(static_cast<size_t>(n));
    std::generate(x.begin(), x.end(), f);
    return x;
}

struct named_row {
    std::string        name;
    std::vector<float> x;
};

std::vector<named_row> rows_of(int32_t n) {
    dice                   d(uint64_t(n) * 77);
    std::vector<named_row> rows;
    const auto             add = [&](const char * name, auto && f) {
        rows.push_back({std::string(name) + ", " + std::to_string(n), row_of(n, f)});
    };
    add("bell", [&] { return 3.0f * gaussian(d); });
    add("all below 0", [&] { return -50.0f - std::abs(gaussian(d)); });
    add("flat", [&] { return 1e-3f * gaussian(d); });
    add("ties", [&] { return float(d.below(4)); });
    add("zeros of both signs", [&] { return d.chance(0.5) ? 0.0f : -0.0f; });
    add("all equal", [] { return -2.5f; });
    add("rising", [i = 0.0f]() mutable { return i += 1.0f / 16; });
    add("falling", [i = 0.0f]() mutable { return i -= 1.0f / 16; });
    add("some NaN", [&] { return d.chance(0.1) ? nan : gaussian(d); });
    add("mostly NaN", [&] { return d.chance(0.995) ? nan : gaussian(d); });
    add("mostly NaN, or -inf", [&] { return d.chance(0.99) ? nan : -infinity; });
    add("all NaN", [] { return nan; });
    add("NaN first", [first = true]() mutable { return std::exchange(first, false) ? nan : 1.0f; });
    add("some -inf", [&] { return d.chance(0.5) ? -infinity : gaussian(d); });
    add("mostly -inf", [&] { return d.chance(0.9995) ? -infinity : gaussian(d); });
    add("all -inf", [] { return -infinity; });
    add("some +inf", [&] { return d.chance(0.001) ? infinity : gaussian(d); });
    add("all +inf", [] { return infinity; });
    add("of any size", [&] { return std::ldexp(gaussian(d), d.between(-140, 120)); });
    add("one far above", [&, i = 0]() mutable { return i++ == n / 2 ? 1e9f : gaussian(d); });
    add("just within reach", [i = 0]() mutable { return i++ == 0 ? 0.0f : -16.1f; });
    add("just out of reach", [&, i = 0]() mutable { return i++ == 0 ? 0.0f : -13.01f - std::log(float(n)); });
    return rows;
}

// All that are numbers, best first; equal ones in the order of their ids.
std::vector<token_id> sorted(const std::vector<float> & x) {
    std::vector<token_id> ids(x.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::erase_if(ids, [&](token_id t) { return std::isnan(x[size_t(t)]); });
    std::stable_sort(ids.begin(), ids.end(), [&](token_id a, token_id b) { return x[size_t(a)] > x[size_t(b)]; });
    return ids;
}

double exact_log_sum_exp(const std::vector<float> & x) {
    double max = -double(infinity);
    for (const float logit : x) {
        max = logit > max ? logit : max;
    }
    double sum = 0.0;
    for (const float logit : x) {
        sum += std::isnan(logit) ? 0.0 : std::exp(double(logit) - max);
    }
    return std::isinf(max) ? max : max + std::log(sum);
}

// In two passes, over what is not -inf or NaN.
double exact_deviation(const std::vector<float> & x) {
    double mean = 0.0, squares = 0.0, n = 0.0;
    for (const float logit : x) {
        n += logit > -infinity ? 1.0 : 0.0;
        mean += logit > -infinity ? double(logit) : 0.0;
    }
    mean /= n;
    for (const float logit : x) {
        squares += logit > -infinity ? (double(logit) - mean) * (double(logit) - mean) : 0.0;
    }
    return n > 0.0 && std::isfinite(mean) ? std::sqrt(squares / n) : double(infinity);
}

} // namespace

TEST(best_are_those_of_a_stable_sort) {
    logit_row              row; // one for all: nothing of a row is left when the next comes
    std::vector<top_logit> top;
    for (const int32_t n : sizes) {
        for (const auto & [name, x] : rows_of(n)) {
            const std::vector<token_id> ids = sorted(x);
            row.read(x.data(), n);
            CHECK_EQ(row.argmax(), ids.empty() ? no_token : ids[0], name);
            for (const size_t k : {size_t(0), size_t(1), size_t(2), size_t(5), size_t(40), size_t(700), size_t(n)}) {
                row.top_k(k, top);
                REQUIRE_EQ(top.size(), std::min(k, ids.size()), name);
                for (size_t i = 0; i < top.size(); ++i) {
                    REQUIRE_EQ(top[i].token, ids[i], name + ", top " + std::to_string(k));
                    REQUIRE_EQ(top[i].logit, x[size_t(ids[i])], name);
                }
            }
        }
    }
}

TEST(sum_is_that_in_double_precision) {
    logit_row row;
    for (const int32_t n : sizes) {
        for (const auto & [name, x] : rows_of(n)) {
            row.read(x.data(), n);
            const double sum   = row.log_sum_exp();
            const double exact = exact_log_sum_exp(x);
            CHECK(sum == exact || std::abs(sum - exact) < 1e-5, name + ": " + std::to_string(sum - exact));
        }
    }
}

TEST(deviation_is_that_of_two_passes) {
    logit_row row;
    for (const int32_t n : sizes) {
        for (const auto & [name, x] : rows_of(n)) {
            row.read(x.data(), n);
            const double d     = row.deviation();
            const double exact = exact_deviation(x);
            CHECK(d == exact || std::abs(d - exact) < 1e-6 * exact + 1e-9, name + ": " + std::to_string(d));
        }
    }
}

TEST(sum_of_one_step_down_is_exact_at_any_depth) {
    // 64 equal logits below one of 0: the error of the fast exp itself, along its whole range.
    std::vector<float> x(128, -infinity);
    logit_row          row;
    for (float depth = 0.0f; depth < 17.0f; depth += 0.0009765625f) {
        x[0] = 0.0f;
        std::fill(x.begin() + 64, x.end(), -depth);
        row.read(x.data(), 128);
        const double sum = 1.0 + 64.0 * std::exp(-double(depth));
        REQUIRE(std::abs(std::exp(row.log_sum_exp()) - sum) < 1e-6 * sum, std::to_string(depth));
    }
}

TEST(zero_rows) {
    logit_row              row;
    std::vector<top_logit> top;
    row.read(nullptr, 0);
    row.top_k(5, top);
    CHECK_EQ(row.argmax(), no_token);
    CHECK(top.empty());
    CHECK_EQ(row.log_sum_exp(), -double(infinity));
}
