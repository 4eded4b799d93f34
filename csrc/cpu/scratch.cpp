#include "scratch.h"

#if defined(__linux__)
#include <algorithm>
#include <cstdint>
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace duo::cpu {

#if defined(__linux__)

namespace {

constexpr size_t n_pages = size_t(2) << 20; // bytes

// Maps the file at each multiple of its size.
bool map_repeatedly(int fd, uint8_t * at, size_t size) {
    for (size_t i = 0; i < size; i += n_pages) {
        if (mmap(at + i, n_pages, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
            return false;
        }
    }
    return true;
}

} // namespace

scratch::scratch(size_t size) {
    const int fd = memfd_create("duo-scratch", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, off_t(n_pages)) != 0) {
        size = 0;
    }
    size_ = (size + n_pages - 1) / n_pages * n_pages;
    void * const space =
        size_ == 0 ? MAP_FAILED : mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space != MAP_FAILED && !map_repeatedly(fd, static_cast<uint8_t *>(space), size_)) {
        munmap(space, size_);
    } else if (space != MAP_FAILED) {
        data_ = space;
    }
    if (fd >= 0) {
        close(fd);
    }
}

scratch::~scratch() {
    if (data_ != nullptr) {
        munmap(data_, size_);
    }
}

#else

scratch::scratch(size_t) {
}

scratch::~scratch() = default;

#endif

} // namespace duo::cpu
