#include "packed_weights.h"

#if defined(__linux__)
#include <sys/resource.h>
#endif

namespace duo::cpu {

namespace {

constexpr uint64_t n_block = 512; // bytes, whatever the disk has

// That this process, or this thread, has read from disks.
uint64_t blocks_read([[maybe_unused]] bool here) {
    uint64_t n = 0;
#if defined(__linux__)
    rusage used{};
    getrusage(here ? RUSAGE_THREAD : RUSAGE_SELF, &used);
    n = uint64_t(used.ru_inblock);
#endif
    return n;
}

} // namespace

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
        .n_read = [] { return blocks_read(false); },
        // Its last page is read last. Other pages stay out of the page tables, so that those nobody uses go first.
        .wait        = [file = file_, offset](const uint8_t * p,
                                       size_t n) { [[maybe_unused]] const bool ok = file->fill(offset(p) + n - 1, 1); },
        .n_read_here = [] { return n_block * blocks_read(true); }};
}

} // namespace duo::cpu
