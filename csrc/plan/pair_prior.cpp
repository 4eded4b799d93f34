#include "pair_prior.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace duo {

double pair_prior::pass(int32_t n_rows) const {
    if (pass_us.empty()) {
        return 0.0;
    }
    if (n_rows <= pass_us.front().first || pass_us.size() == 1) {
        return pass_us.front().second;
    }
    auto above = std::find_if(pass_us.begin(), pass_us.end(), [n_rows](const auto & p) { return p.first >= n_rows; });
    above      = above == pass_us.end() ? above - 1 : above;
    const auto [n0, us0] = *(above - 1);
    const auto [n1, us1] = *above;
    return us0 + std::max(0.0, us1 - us0) * (n_rows - n0) / (n1 - n0);
}

void pair_prior::check() const {
    int32_t last = 0;
    for (const auto & [n, us] : pass_us) {
        if (n <= last || !std::isfinite(us) || us <= 0.0) {
            throw error(error_kind::bad_value,
                        "the expected pass times are not positive, or not in the order of their numbers of rows");
        }
        last = n;
    }
    if (split.target < 0 || split.draft < 0 || (split.target > 0) != (split.draft > 0)) {
        throw error(error_kind::bad_value, "the split of the cores leaves one of the models without a core");
    }
    if (!std::isfinite(step_us) || step_us < 0.0) {
        throw error(error_kind::bad_value, "the expected time of a draft step is negative or not finite");
    }
}

} // namespace duo
