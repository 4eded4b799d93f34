// Duo's kernels against stock ones on one matrix, through ggml: which are faster here?
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace duo::cpu {

// Changes when a race may end otherwise than before.
constexpr const char * kernels_version = "2";

// Of the matrix that a race's times are about.
constexpr int64_t race_bytes = 64 << 20;

// ggml's names of the weight types that duo has kernels for.
std::vector<std::string> kernel_types();

// Best times of one product of a matrix of race_bytes, which no cache holds. Prompts are bound by arithmetic: their
// times are a smaller matrix's, multiplied.
struct race_time {
    double stock_us;
    double duo_us;
};

// What a team of threads does.
struct team_race {
    int                    ahead; // how far ahead duo's kernels read weights best: see product.h
    std::vector<race_time> times; // of each width
};

// widths: numbers of inputs at once. teams: numbers of threads. n_us: time to spend on each width, about. Stock's
// product runs where libllama would put the weights: in the first of the CPU's extra buffer types (repacked) that takes
// them, else in the plain one. In the end read_ahead_of is what was best for the last team. Throws duo::error without
// kernels, for an unknown type, and if memory is missing.
std::vector<team_race> race(const std::string & type, const std::vector<int> & widths, const std::vector<int> & teams,
                            int64_t n_us);

// Sets it for a weight type, process-wide. Throws duo::error for an unknown type.
void read_ahead_of(const std::string & type, int n_bytes);

// Sums of squared errors, as shares of the exact product's own; exact: these weights and inputs in double precision.
struct product_error {
    double stock;
    double duo;
};

// Of rows of a weight in the file's form, times Gaussian inputs. Throws duo::error: as race, and if they are no whole
// rows.
product_error product_errors(const std::string & type, std::string_view weights, int64_t n_columns, int width);

} // namespace duo::cpu
