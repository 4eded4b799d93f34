#include "file_map.h"

#include <algorithm>
#include <array>

#include "error.h"
#include "huge_page.h"

#if defined(DUO_HAS_MMAP)
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace duo {

#if defined(DUO_HAS_MMAP)

namespace {

// Of what is wanted at once, Linux reads no more than its read-ahead, or what the disk takes in one request. Almost all
// systems and disks have so much.
constexpr size_t n_wanted_at_once = size_t(128) << 10;

#if defined(__linux__)
using page_state = unsigned char;
#else
using page_state = char;
#endif

bool is_in_memory(page_state page) {
    return (page & 1) != 0;
}

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
uint8_t * map_file(int fd, size_t size) {
    uint8_t * const space = map_aligned(size, PROT_NONE);
    // Nobody writes to these pages, so processes share them. Some file systems allow only private mappings.
    if (space != nullptr && mmap(space, size, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == MAP_FAILED) {
        const int why = errno;
        munmap(space, size);
        errno = why;
        return nullptr;
    }
    return space;
}

} // namespace

file_map::file_map(const std::string & path, bool sequential) {
    const descriptor file(path);
    struct stat      facts {};
    if (file.fd < 0 || fstat(file.fd, &facts) != 0) {
        throw error(error_kind::unknown_model, path + " cannot be read: " + std::strerror(errno));
    }
    size_  = size_t(facts.st_size);
    tells_ = facts.st_uid == geteuid() || access(path.c_str(), W_OK) == 0;
    data_  = size_ == 0 ? nullptr : map_file(file.fd, size_);
    if (data_ == nullptr) {
        throw error(error_kind::does_not_fit, path + " cannot be mapped into memory (" +
                                                  (size_ == 0 ? "it is empty" : std::strerror(errno)) +
                                                  "); check the file");
    }
    watched_.emplace(data_, size_);
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
    watched_.reset();
    if (data_ != nullptr) {
        munmap(data_, size_);
    }
}

void file_map::use_small_pages() const {
#if defined(MADV_NOHUGEPAGE)
    madvise(data_, size_, MADV_NOHUGEPAGE);
#endif
}

void file_map::lock() const {
    mlock(data_, size_);
}

void file_map::forget(size_t offset, size_t n) const {
    const size_t first = up_to(offset, page_size());
    const size_t last  = (offset + n) / page_size() * page_size();
    if (first < last) {
        madvise(data_ + first, last - first, MADV_DONTNEED);
    }
}

// One call that finds the missing pages of a block costs less than asking for all of them.
void file_map::want(size_t offset, size_t n) const {
    std::array<page_state, 512> pages;
    const size_t                n_page = page_size();
    const size_t                end    = std::min(offset + n, size_);
    for (size_t block = offset / n_page * n_page; block < end; block += pages.size() * n_page) {
        const size_t n_block = std::min(pages.size() * n_page, end - block);
        const size_t n_pages = up_to(n_block, n_page) / n_page;
        if (!tells_ || mincore(data_ + block, n_block, pages.data()) != 0) {
            pages.fill(0);
        }
        for (size_t i = 0; i < n_pages;) {
            size_t last = i;
            while (last < n_pages && !is_in_memory(pages[last]) && (last - i) * n_page < n_wanted_at_once) {
                ++last;
            }
            if (last > i) {
                madvise(data_ + block + i * n_page, (last - i) * n_page, MADV_WILLNEED);
            }
            i = std::max(last, i + 1);
        }
    }
}

bool file_map::fill([[maybe_unused]] size_t offset, [[maybe_unused]] size_t n) const {
#if defined(__linux__)
    constexpr int populate_read = 22; // MADV_POPULATE_READ, since Linux 5.14; older headers do not have it
    const size_t  first         = offset / page_size() * page_size();
    return madvise(data_ + first, std::min(offset + n, size_) - first, populate_read) == 0;
#else
    return false;
#endif
}

bool file_map::in_memory(size_t offset) const {
    page_state page = 0;
    return tells_ && mincore(data_ + offset / page_size() * page_size(), 1, &page) == 0 && is_in_memory(page);
}

#else

file_map::file_map(const std::string & path, bool) {
    throw error(error_kind::does_not_fit, path + " cannot be mapped: duo maps files on Linux and macOS only");
}

file_map::~file_map() = default;

void file_map::use_small_pages() const {
}

void file_map::lock() const {
}

void file_map::forget(size_t, size_t) const {
}

void file_map::want(size_t, size_t) const {
}

bool file_map::fill(size_t, size_t) const {
    return false;
}

bool file_map::in_memory(size_t) const {
    return false;
}

#endif

} // namespace duo
