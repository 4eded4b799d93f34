#include "file_map.h"

#include "error.h"

#if defined(__unix__) || defined(__APPLE__)
#define DUO_MAPS_FILES
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace duo {

#if defined(DUO_MAPS_FILES)

namespace {

constexpr size_t huge_page = size_t(2) << 20;

struct descriptor {
    int fd;
    explicit descriptor(const std::string & path) : fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
    ~descriptor() {
        if (fd >= 0) {
            close(fd);
        }
    }
    descriptor(const descriptor &)             = delete;
    descriptor & operator=(const descriptor &) = delete;
};

// Address and file agree on where a huge page begins. Only then can the system map huge pages of its page cache.
uint8_t * map_aligned(int fd, size_t size) {
    void * space = mmap(nullptr, size + huge_page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED) {
        return nullptr;
    }
    auto * const begin  = static_cast<uint8_t *>(space);
    const size_t before = (huge_page - reinterpret_cast<uintptr_t>(begin) % huge_page) % huge_page;
    const size_t page   = size_t(sysconf(_SC_PAGESIZE));
    const size_t used   = (size + page - 1) / page * page;
    // Nobody writes to these pages, so processes share them. Some file systems allow only private mappings.
    void * const mapped = mmap(begin + before, size, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0);
    const int    why    = errno;
    if (before > 0) {
        munmap(begin, before);
    }
    if (const size_t end = (size + huge_page + page - 1) / page * page; before + used < end) {
        munmap(begin + before + used, end - before - used);
    }
    if (mapped == MAP_FAILED) {
        munmap(begin + before, used);
        errno = why;
        return nullptr;
    }
    return static_cast<uint8_t *>(mapped);
}

} // namespace

file_map::file_map(const std::string & path, bool sequential) {
    const descriptor file(path);
    struct stat      facts {};
    if (file.fd < 0 || fstat(file.fd, &facts) != 0) {
        throw error(error_kind::unknown_model, path + " cannot be read: " + std::strerror(errno));
    }
    size_ = size_t(facts.st_size);
    data_ = size_ == 0 ? nullptr : map_aligned(file.fd, size_);
    if (data_ == nullptr) {
        throw error(error_kind::does_not_fit, path + " cannot be mapped into memory (" +
                                                  (size_ == 0 ? "it is empty" : std::strerror(errno)) +
                                                  "); check the file");
    }
    if (sequential) {
        madvise(data_, size_, MADV_SEQUENTIAL);
    }
#if defined(MADV_HUGEPAGE)
    else {
        madvise(data_, size_, MADV_HUGEPAGE); // where the file system has such pages
    }
#endif
}

file_map::~file_map() {
    if (data_ != nullptr) {
        munmap(data_, size_);
    }
}

void file_map::lock() const {
    mlock(data_, size_);
}

void file_map::forget(size_t offset, size_t n) const {
    const size_t page  = size_t(sysconf(_SC_PAGESIZE));
    const size_t first = (offset + page - 1) / page * page;
    const size_t last  = (offset + n) / page * page;
    if (first < last) {
        madvise(data_ + first, last - first, MADV_DONTNEED);
    }
}

#else

file_map::file_map(const std::string & path, bool) {
    throw error(error_kind::does_not_fit, path + " cannot be mapped: duo maps files on Linux and macOS only");
}

file_map::~file_map() = default;

void file_map::lock() const {
}

void file_map::forget(size_t, size_t) const {
}

#endif

} // namespace duo
