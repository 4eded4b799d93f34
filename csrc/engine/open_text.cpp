#include "open_text.h"

#include <utility>

#include "base/clock.h"

namespace duo {

void open_text::give(text_chunk & out) {
    if (!chunks_.empty()) {
        out = std::move(chunks_.front());
        chunks_.pop_front();
        return;
    }
    out        = {};
    out.finish = std::exchange(owed_, finish_reason::none);
    out.t_us   = now_us();
}

} // namespace duo
