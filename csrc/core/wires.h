// All that connects the threads: the rings, the bells, the clocks.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "channel.h"
#include "clock.h"
#include "request.h"

namespace duo {

// Owned by the engine, which outlives both workers; shared with the link where one of them is in another process.
struct wires {
    // one_outside: a host's thread that reads verdicts and text alike, for one that is elsewhere.
    explicit wires(bool one_outside = false) : reader_bell(one_outside ? draft_bell : own_reader_bell) {}

    bell   draft_bell;
    bell   verify_bell;
    bell   own_reader_bell;
    bell & reader_bell;

    channel<node_msg>    nodes{1024, draft_bell, verify_bell};
    channel<verdict_msg> verdicts{8192, verify_bell, draft_bell};
    channel<chunk_msg>   chunks{4096, verify_bell, reader_bell};
    channel<request *>   requests{4, reader_bell, verify_bell};

    // Full trace rings drop events rather than slow a worker down.
    channel<trace_event> draft_trace{32768, draft_bell, reader_bell};
    channel<trace_event> verify_trace{8192, verify_bell, reader_bell};
    bool                 tracing = false; // set before the workers start

    // Round trip to a draft that is elsewhere; its link writes. Relaxed: a figure that guards nothing.
    std::atomic<int64_t> rtt_us{0};

    busy_clock draft_busy;
    busy_clock verify_busy;

    // A link holds it while it follows a message's request, the pipeline takes it once before requests are freed. Both
    // look at `gone` under it. Nothing else is locked.
    std::mutex link_mutex;
    bool       gone = false;
    // What a target_link told the draft to begin with, until the draft lets go of it.
    std::vector<std::unique_ptr<request>> begins;
};

} // namespace duo
