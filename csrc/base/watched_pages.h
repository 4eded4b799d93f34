// Mapped pages that cannot be read: the disk failed, or the file became shorter. The system then sends SIGBUS, which
// would end the process.
#pragma once

#include <cstddef>
#include <cstdint>

namespace duo {

// While one lives, its pages that cannot be read are replaced by zeros, and lost() tells so. For a range of mapped
// memory that is only read. There is room for 1024 at a time; pages of further ones end the process as before.
class watched_pages {
  public:
    watched_pages(const void * data, size_t size);
    ~watched_pages();
    watched_pages(const watched_pages &)             = delete;
    watched_pages & operator=(const watched_pages &) = delete;

    // Whether one that lives has this address.
    [[nodiscard]] static bool watches(const void * address);
    // Some page was replaced, so what was computed from this range may be wrong.
    [[nodiscard]] bool lost() const;

  private:
    struct watched_range * range_; // nullptr: there was no room
};

} // namespace duo
