// The process in which an engine was made. After a fork the child has a copy of it, but not of its threads.
#pragma once

#if defined(_WIN32)
#include <process.h>
#else
#include <unistd.h>
#endif

#include "base/error.h"

namespace duo {

class home_process {
  public:
    [[nodiscard]] bool is_this() const { return id_ == id(); }
    // Before a lock, which another thread may have held when this process was forked. Throws duo::error.
    void require() const {
        if (!is_this()) {
            throw error(error_kind::bad_value,
                        "this Duo belongs to the process that this one was forked from, and so do its "
                        "threads; make a Duo in this process");
        }
    }

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
