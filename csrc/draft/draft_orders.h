// What the target last told the draft to do.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/messages.h"
#include "tree/sharpness.h"

namespace duo {

// One for each text. The fields are those of verdict_msg, in the draft's own units.
struct draft_orders {
    int32_t n_ahead   = 1; // levels below the root that the target wants
    int32_t n_branch  = 1; // nodes in a step at most
    int32_t n_want    = 0; // pause when the best n_want nodes are known; 0: no such bound
    int32_t n_threads = 0; // of the steps; 0: all that the model was given

    // log of the chance below which a node is not expanded
    float least_path   = -std::numeric_limits<float>::infinity();
    float branch_price = 1.0f; // one node more in a step, as a share of a step over one

    double power = 1.0; // to which its own estimates are right (sharpness.h)

    // n_branch: branches of the draft's cache.
    [[nodiscard]] static draft_orders of(const verdict_msg & v, int32_t n_branch) {
        const float nothing = -std::numeric_limits<float>::infinity();
        return {.n_ahead      = v.n_ahead,
                .n_branch     = std::min(int32_t(v.n_branch), n_branch),
                .n_want       = v.n_want,
                .n_threads    = v.n_threads,
                .least_path   = v.least_path > 0 ? std::log(float(v.least_path) * 1e-3f) : nothing,
                .branch_price = float(v.branch_price) * 1e-3f,
                .power        = sharpness::power_of(v.sharpness)};
    }
};

} // namespace duo
