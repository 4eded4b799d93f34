#include "packed_weights.h"

namespace duo::cpu {

const packed_weight * packed_weights::find(const ggml_tensor * t, ggml_type stored) const {
    const auto it = all_.find(ggml_get_name(t));
    if (it == all_.end()) {
        return nullptr;
    }
    const packed_weight & w = it->second;
    const bool same = w.type == t->type && w.stored == stored && w.n_columns == t->ne[0] && w.n_rows == t->ne[1] &&
                      w.n_matrices == t->ne[2] * t->ne[3];
    return same ? &w : nullptr;
}

} // namespace duo::cpu
