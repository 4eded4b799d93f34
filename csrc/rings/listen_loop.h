// The loop of a thread that reads messages: look for work, and sleep on a bell while there is none.
#pragma once

#include <cstdint>

#include "bell.h"

namespace duo {

// What one look has found.
enum class found : uint8_t {
    nothing, // sleep until the bell rings
    work,    // there may be more: look again at once
    done,    // the loop ends
};

inline found done_if(bool done) {
    return done ? found::done : found::nothing;
}

// Calls look() until it says `done`. True: it did. False: no more messages can come, or `deadline_us` (now_us() scale)
// has passed.
// The ticket is taken before each look, so a message that comes during the look is not missed. closed() is asked before
// the look as well, so the last look still sees all messages that came before the channel was closed.
template <typename Closed, typename Look>
bool listen_until(bell & b, int64_t deadline_us, Closed && closed, Look && look) {
    for (;;) {
        const uint32_t heard = b.listen();
        const bool     last  = closed();
        const found    f     = look();
        if (f == found::done) {
            return true;
        }
        if (f == found::nothing && (last || !b.wait(heard, deadline_us))) {
            return false;
        }
    }
}

} // namespace duo
