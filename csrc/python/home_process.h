// The process in which something was made. After a fork the child has a copy of it, but not of its threads.
#pragma once

#if defined(_WIN32)
#include <process.h>
#else
#include <unistd.h>
#endif

namespace duo {

class home_process {
  public:
    [[nodiscard]] bool is_this() const { return id_ == id(); }

  private:
#if defined(_WIN32)
    static int id() { return _getpid(); }
    int        id_ = id();
#else
    static pid_t id() { return getpid(); }
    pid_t        id_ = id();
#endif
};

} // namespace duo
