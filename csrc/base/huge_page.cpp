#include "huge_page.h"

#if defined(DUO_HAS_MMAP)

#include <sys/mman.h>
#include <unistd.h>

namespace duo {

size_t page_size() {
    return size_t(sysconf(_SC_PAGESIZE));
}

uint8_t * map_aligned(size_t size, int access) {
    const size_t n_kept = up_to(size, page_size());
    void * const all    = mmap(nullptr, n_kept + huge_page, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) {
        return nullptr;
    }
    // Frees what is before and after.
    auto * const begin  = static_cast<uint8_t *>(all);
    const size_t before = up_to(reinterpret_cast<uintptr_t>(begin), huge_page) - reinterpret_cast<uintptr_t>(begin);
    if (before > 0) {
        munmap(begin, before);
    }
    if (before < huge_page) {
        munmap(begin + before + n_kept, huge_page - before);
    }
    return begin + before;
}

} // namespace duo

#endif
