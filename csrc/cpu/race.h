// Duo's kernels against stock ones on one matrix, through ggml: which are faster here?
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace duo::cpu {

// Changes when a race may end otherwise than before.
constexpr const char * kernels_version = "1";

// Of the matrix that a race's times are about.
constexpr int64_t race_bytes = 64 << 20;

// ggml's names of the weight types that duo has kernels for.
std::vector<std::string> kernel_types();

struct race_result {
    double stock_us; // best time of one product of a matrix that no cache holds
    double duo_us;
};

// n_us: time to spend, about. width: inputs at once. Stock's product runs where libllama would put the weights: in the
// first of the CPU's extra buffer types (repacked) that takes them, else in the plain one.
// Throws duo::error without kernels, for an unknown type, and if memory is missing.
race_result race(const std::string & type, int width, int n_threads, int64_t n_us);

// Sums of squared errors, as shares of the exact product's own; exact: these weights and inputs in double precision.
struct product_error {
    double stock;
    double duo;
};

// Of rows of a weight in the file's form, times Gaussian inputs. Throws duo::error: as race, and if they are no whole
// rows.
product_error product_errors(const std::string & type, std::string_view weights, int64_t n_columns, int width);

} // namespace duo::cpu
