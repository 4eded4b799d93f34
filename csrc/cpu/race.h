// Duo's kernels against stock ones on one matrix, through ggml: which are faster here?
#pragma once

#include <string>
#include <vector>

namespace duo::cpu {

// Changes when a race may end otherwise than before.
constexpr const char * kernels_version = "1";

// ggml's names of the weight types that duo has kernels for.
std::vector<std::string> kernel_types();

struct race_result {
    double stock_us; // best time of one product of a matrix that no cache holds
    double duo_us;
    double error;       // of duo's product against stock's dequantised weights in double precision: sum of squares,
    double stock_error; // as a share of the product's own; the same of stock's
};

// n_us: time to spend, about. width: inputs at once. Stock's product runs where libllama would put the weights: in the
// first of the CPU's extra buffer types (repacked) that takes them, else in the plain one.
// Throws duo::error without kernels, for an unknown type, and if memory is missing.
race_result race(const std::string & type, int width, int n_threads, int64_t n_us);

} // namespace duo::cpu
