// libggml's assertions, as exceptions: while a model is loaded, a damaged file or too little memory must not end the
// process.
#pragma once

#include <string>

namespace duo {

// While one lives, a failed assertion of libggml in this thread throws std::runtime_error, which libllama catches and
// logs, or the caller gets. Only for work that one thread does: a team of threads would wait for the one that threw.
class throwing_checks {
  public:
    throwing_checks();
    ~throwing_checks();
    throwing_checks(const throwing_checks &)             = delete;
    throwing_checks & operator=(const throwing_checks &) = delete;
};

// The same for those alone that found no memory (std::bad_alloc), which come before a team begins its work, and for
// failed calls of a GPU's driver (std::runtime_error), which happen in the calling thread.
class throwing_shortage {
  public:
    throwing_shortage();
    ~throwing_shortage();
    // Whether one threw. libggml's scheduler then has a pointer to memory that it has freed: nothing may use it again.
    bool threw() const;
    throwing_shortage(const throwing_shortage &)             = delete;
    throwing_shortage & operator=(const throwing_shortage &) = delete;
};

// Makes `otherwise` handle assertions that do not throw; it gets libggml's message, and the process ends after it.
void on_failed_check(void (*otherwise)(const char * message));

} // namespace duo
