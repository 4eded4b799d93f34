// Brings mapped files into memory, in a thread of its own, while the process does something else: from the disk into
// the system's page cache, and from there into this process's page tables.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "file_map.h"

namespace duo {

class read_ahead {
  public:
    // One after the other, each from front to back.
    explicit read_ahead(std::vector<std::shared_ptr<const file_map>> files);
    // Waits for the end. False: a page could not be read, or there is no thread.
    [[nodiscard]] bool finished();
    // Stops.
    ~read_ahead();
    read_ahead(const read_ahead &)             = delete;
    read_ahead & operator=(const read_ahead &) = delete;

  private:
    std::atomic<bool> stop_ = false;
    std::atomic<bool> all_  = false; // files were read to their ends
    std::thread       thread_;       // not joinable: there is nothing to do
};

} // namespace duo
