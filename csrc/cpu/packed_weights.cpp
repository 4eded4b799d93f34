#include "packed_weights.h"

#if defined(__linux__)
#include <sys/resource.h>
#endif

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

page_system packed_weights::pages() const {
    const auto offset = [file = file_](const uint8_t * p) { return size_t(p - file->data()); };
    return {
        .is_mapped = [file = file_](const uint8_t * p) { return p >= file->data() && p < file->data() + file->size(); },
        .in_memory = [file = file_, offset](const uint8_t * p) { return file->in_memory(offset(p)); },
        .want =
            [file = file_, offset, n_wanted = n_wanted_](const uint8_t * p, size_t n) {
                file->want(offset(p), n);
                n_wanted->fetch_add(n, std::memory_order_relaxed);
            },
        .n_read =
            [] {
                uint64_t n = 0;
#if defined(__linux__)
                rusage used{};
                getrusage(RUSAGE_SELF, &used);
                n = uint64_t(used.ru_inblock);
#endif
                return n;
            }};
}

} // namespace duo::cpu
