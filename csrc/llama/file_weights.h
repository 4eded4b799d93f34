// The weights of a file's matrix products, as its header lists them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <ggml.h>

namespace duo {

// A draft head's, for the target's hidden states (EAGLE-3). It goes where the output matrix goes.
constexpr const char * name_fc = "fc.weight";

// A weight of a matrix product. layer: -1 for the output matrix and a head's fc.
struct file_weight {
    std::string name;
    std::string kind;
    int         layer;
    ggml_type   type;
    int64_t     n_columns, n_rows, n_matrices;
};

// Whether it is a recurrent layer's.
bool is_recurrent(const file_weight & w);

struct file_weights {
    std::vector<file_weight> all;     // products that duo's kernels may take
    std::vector<file_weight> others;  // products that they may not take
    std::vector<file_weight> routers; // duo's kernels take them if they take all others
    std::vector<int>         small;   // layers of other F32 matrices
    int64_t                  n_layer    = 0;
    int64_t                  n_mtp      = 0; // of these layers, the last ones
    bool                     has_mtp    = false;
    bool                     has_planes = false;
};

// Reads all parts of a file that is split. What cannot be read is missing: loading will report it.
file_weights read_weights(const std::string & path);

template <class C, class T> bool has(const C & all, const T & one) {
    return std::find(all.begin(), all.end(), one) != all.end();
}

} // namespace duo
