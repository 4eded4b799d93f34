// Counts how much time was spent on each kind of pass.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "wires/pass_counts.h"

namespace duo {

// Belongs to the verify worker's thread. What a plan has cost that was not carried out is booked with the next pass.
class pass_clock {
  public:
    void stop() { t_ = 0; } // there is no text
    void start() { t_ = t_ == 0 ? now_us() : t_; }

    void begin_pass() { kind_ = pass_kind::none; }
    void is_made() { kind_ = kind_ == pass_kind::none ? pass_kind::reading : kind_; }
    void is_for(stance s) { kind_ = pass_kind_of(s); }

    void book(pass_board & on) {
        if (kind_ != pass_kind::none) {
            const int64_t now = now_us();
            on.spend(kind_, now - t_);
            t_ = now;
        }
    }

  private:
    pass_kind kind_ = pass_kind::none; // none: no pass was made
    int64_t   t_    = 0;               // time is booked up to here; 0: there was no text
};

} // namespace duo
