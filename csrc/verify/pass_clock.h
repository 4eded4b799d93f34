// Counts how much time was spent on each kind of pass.
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "wires/pass_counts.h"

namespace duo {

// Belongs to the verify worker's thread. What a plan has cost that was not carried out is booked with the next pass.
class pass_clock {
  public:
    void stop() { t_ = 0; } // there is no text
    void start() { t_ = t_ == 0 ? now_us() : t_; }

    void begin_pass() { kind_.reset(); }
    void is_made() { kind_ = kind_.value_or(pass_counts::reading); }
    void is_for(stance s) { kind_ = size_t(s); }

    void book(pass_board & on) {
        if (kind_.has_value()) {
            const int64_t now = now_us();
            on.spend(*kind_, now - t_);
            t_ = now;
        }
    }

  private:
    std::optional<size_t> kind_;  // what the pass was for, see pass_counts; none: no pass was made
    int64_t               t_ = 0; // time is booked up to here; 0: there was no text
};

} // namespace duo
