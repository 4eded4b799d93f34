// The experts of a mixture, and what a router has chosen for the rows of a pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace duo {

// Layers are those with experts, counted in the order of a pass.
struct expert_shape {
    int32_t n_layer  = 0;
    int32_t n_expert = 0; // of a layer
    int32_t n_used   = 0; // for a row

    bool operator==(const expert_shape &) const = default;

    // The share of a layer's experts that a row needs.
    [[nodiscard]] float share() const { return float(n_used) / float(n_expert); }
    // So many rows leave out almost no expert of a layer.
    [[nodiscard]] bool needs_all(size_t n_rows) const { return n_rows * size_t(n_used) >= 4 * size_t(n_expert); }
};

struct expert_choice {
    std::span<const int32_t> experts; // [rows][n_used]
    int32_t                  n_used = 0;

    [[nodiscard]] size_t                   n_rows() const { return experts.size() / size_t(n_used); }
    [[nodiscard]] std::span<const int32_t> of(size_t row) const {
        return experts.subspan(row * size_t(n_used), size_t(n_used));
    }
};

} // namespace duo
