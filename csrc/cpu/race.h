// Measures whether duo's or stock kernels are faster on this machine, with one matrix through ggml.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace duo::cpu {

// Change this if races, or the bits of texts, may be others than before.
constexpr const char * kernels_version = "5";

// Size of the matrix to which a race's times refer. It is larger than most caches.
constexpr int64_t race_bytes = 64 << 20;

// ggml's names of the weight types that duo has kernels for.
std::vector<std::string> kernel_types();

// Best times of one product with a matrix of race_bytes. It comes from main memory if it is larger than the caches or
// the processor can evict it. Where a smaller matrix is enough, its times are scaled up: arithmetic limits prompts, and
// an evicted matrix comes from main memory at any size.
struct race_time {
    double stock_us;
    double duo_us;
};

// Results for one team of threads.
struct team_race {
    int                    ahead; // the best prefetch distance of duo's kernels: see product.h
    std::vector<race_time> times; // of each width
};

// widths: numbers of inputs at once. teams: numbers of threads. n_us: approximate time for each width. Stock's weights
// are where libllama would put them: in the first of the CPU's extra buffer types (repacked) that takes them, otherwise
// in plain memory. Afterwards the prefetch distance is the best one for the last team. Throws duo::error without
// kernels, for an unknown type, and if there is too little memory.
std::vector<team_race> race(const std::string & type, const std::vector<int> & widths, const std::vector<int> & teams,
                            int64_t n_us);

// Sets the prefetch distance for a weight type in the whole process. Throws duo::error for an unknown type.
void read_ahead_of(const std::string & type, int n_bytes);

// Sums of squared errors, divided by the sum of squares of the exact product (the same weights and inputs in double
// precision).
struct product_error {
    double stock;
    double duo;
};

// Multiplies rows of a weight in the file's form with Gaussian inputs. Throws duo::error like race, and if the data is
// not whole rows.
product_error product_errors(const std::string & type, std::string_view weights, int64_t n_columns, int width);

} // namespace duo::cpu
