// Whether a thread should wait awake. To wake a sleeping thread takes the ringer a system call, up to 80 µs on a
// virtual machine, which counts where passes take a millisecond or two. Waiting awake pays if the waits are short, and
// does no harm if the thread's core has nothing else to do.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"
#include "bell.h"

namespace duo {

// For one thread.
class eager_wait {
  public:
    // free_core: nobody else needs the core.
    explicit eager_wait(bool free_core) : free_core_(free_core) {}

    // As bell::wait. Waits awake while recent waits were short.
    bool operator()(bell & b, uint32_t heard, int64_t deadline_us) noexcept {
        const int64_t t0   = now_us();
        const bool    rang = b.wait(heard, deadline_us, free_core_ && usual_us_ < longest_us ? longest_us : 0);
        usual_us_ += (std::min(double(now_us() - t0), most_us) - usual_us_) * memory;
        return rang;
    }

  private:
    static constexpr int64_t longest_us = 2000;
    static constexpr double  most_us    = 10 * longest_us; // one long wait is not remembered for ever
    static constexpr double  memory     = 0.25;

    const bool free_core_;
    double     usual_us_ = most_us;
};

} // namespace duo
