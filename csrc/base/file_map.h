// A file in memory: its pages are read when they are used, and processes that map the same file share them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "watched_pages.h"

namespace duo {

class file_map {
  public:
    // Throws duo::error: the file cannot be opened or mapped. sequential: it will be read once, from front to back.
    explicit file_map(const std::string & path, bool sequential = false);
    ~file_map();
    file_map(const file_map &)             = delete;
    file_map & operator=(const file_map &) = delete;

    [[nodiscard]] const uint8_t * data() const { return data_; }
    [[nodiscard]] size_t          size() const { return size_; }

    // The file does not fit into memory. A missing page then brings few others: with huge pages it brings 2 MiB.
    void use_small_pages() const;
    // Keeps the file in memory as far as the system allows.
    void lock() const;
    // The pages of [offset, offset + n) are not needed again soon.
    void forget(size_t offset, size_t n) const;
    // They are needed soon. The system begins to read those that are not in memory, all at once, and this returns.
    void want(size_t offset, size_t n) const;
    // Brings them into memory and into this process's page tables. False: some cannot be read, or the system has no
    // such call.
    [[nodiscard]] bool fill(size_t offset, size_t n) const;
    // The page of this byte is in memory, as far as the system tells: Linux tells only those who may write the file.
    [[nodiscard]] bool in_memory(size_t offset) const;
    // Some page could not be read: the disk failed, or the file became shorter. It reads as zeros.
    [[nodiscard]] bool lost() const { return watched_ && watched_->lost(); }

  private:
    uint8_t * data_  = nullptr;
    size_t    size_  = 0;
    bool      tells_ = false; // the system, what is in memory

    std::optional<watched_pages> watched_;
};

} // namespace duo
