// CPU time of the calling thread.
#pragma once

#include <cstdint>
#include <ctime>

namespace duo {

// Microseconds that this thread has computed. Time when other programs have its core does not count.
inline int64_t thread_us() noexcept {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return int64_t(t.tv_sec) * 1'000'000 + int64_t(t.tv_nsec) / 1000;
}

} // namespace duo
