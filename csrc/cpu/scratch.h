// Memory that is written and never read. Its pages are the same two megabytes again and again, so they stay in a cache
// of the processor, and a large scratch costs no memory.
#pragma once

#include <cstddef>

namespace duo::cpu {

class scratch {
  public:
    // data() is nullptr where the system cannot do it.
    explicit scratch(size_t size);
    ~scratch();
    scratch(const scratch &)             = delete;
    scratch & operator=(const scratch &) = delete;

    [[nodiscard]] void * data() const { return data_; }

  private:
    void * data_ = nullptr;
    size_t size_ = 0;
};

} // namespace duo::cpu
