// A thread's stack for work that calls itself once for each character of a text.
#pragma once

#include <cstddef>
#include <functional>

namespace duo {

// Runs work in a thread of its own, whose stack has n_bytes, and waits for it. Only pages that work uses take memory.
// Throws what work throws, and duo::error where the system gives no such stack. Without POSIX threads, in this thread.
void on_deep_stack(size_t n_bytes, const std::function<void()> & work);

} // namespace duo
