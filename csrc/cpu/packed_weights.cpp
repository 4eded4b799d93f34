#include "packed_weights.h"

#include <algorithm>
#include <vector>

#if defined(__linux__)
#include <sys/resource.h>
#endif

namespace duo::cpu {

namespace {

constexpr uint64_t n_block = 512; // bytes, whatever the disk has

// By page_system::fetch in this process; while one reads, as many as it can. So it is never less than they have read.
std::atomic<uint64_t> n_fetched{0};

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

uint64_t fetch_pages(const file_map & file, size_t offset, size_t n) {
    const uint64_t most = n / n_block + 64; // with the pages at its ends
    n_fetched.fetch_add(most, std::memory_order_seq_cst);
    const uint64_t before = blocks_read(true);
    file.want(offset, n);
    const uint64_t n_here = std::min(blocks_read(true) - before, most);
    n_fetched.fetch_sub(most - n_here, std::memory_order_seq_cst);
    return n_here * n_block;
}

// By all others.
uint64_t blocks_used() {
    const uint64_t n = blocks_read(false);
    return n - std::min(n, n_fetched.load(std::memory_order_seq_cst));
}

// Waits for a page without keeping other pages in the page tables, so that those nobody uses go first.
void bring(const file_map & file, size_t offset, bool fills) {
    if (fills) {
        [[maybe_unused]] const bool ok = file.fill(offset, 1); // false: whoever uses the page will find out
    } else {
        const volatile uint8_t * const byte = file.data() + offset;
        (void)*byte;
    }
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
    const bool fills  = file_->fill(0, 1); // some systems have no such call
    const auto offset = [file = file_](const uint8_t * p) { return size_t(p - file->data()); };
    return {
        .is_mapped = [file = file_](const uint8_t * p) { return p >= file->data() && p < file->data() + file->size(); },
        .in_memory = [file = file_, offset](const uint8_t * p) { return file->in_memory(offset(p)); },
        .want =
            [file = file_, offset, n_wanted = n_wanted_](const uint8_t * p, size_t n) {
                file->want(offset(p), n);
                n_wanted->fetch_add(n, std::memory_order_relaxed);
            },
        .n_read = blocks_used,
        .fetch =
            [file = file_, offset, n_wanted = n_wanted_](const uint8_t * p, size_t n) {
                n_wanted->fetch_add(n, std::memory_order_relaxed);
                return fetch_pages(*file, offset(p), n);
            },
        .wait = [file = file_, offset, fills](const uint8_t * p) { bring(*file, offset(p), fills); }};
}

} // namespace duo::cpu
