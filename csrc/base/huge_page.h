// Memory that is aligned to huge pages. Only then can the system give huge pages.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__unix__) || defined(__APPLE__)
#define DUO_HAS_MMAP
#endif

namespace duo {

constexpr size_t huge_page = size_t(2) << 20;

#if defined(DUO_HAS_MMAP)
constexpr size_t up_to(size_t n, size_t unit) {
    return (n + unit - 1) / unit * unit;
}

// Bytes of a page.
size_t page_size();

// Private memory of whole pages, with this access (PROT_...); munmap() frees it. nullptr: there is none (errno).
uint8_t * map_aligned(size_t size, int access);
#endif

} // namespace duo
