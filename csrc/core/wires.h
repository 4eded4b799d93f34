// All that connects the threads: the rings, the bells, the clocks.
#pragma once

#include "clock.h"
#include "request.h"
#include "spsc_ring.h"

namespace duo {

// Owned by the engine, which outlives both workers.
struct wires {
    bell draft_bell;
    bell verify_bell;
    bell reader_bell;

    channel<node_msg>    nodes{1024, draft_bell, verify_bell};
    channel<verdict_msg> verdicts{8192, verify_bell, draft_bell};
    channel<chunk_msg>   chunks{4096, verify_bell, reader_bell};
    channel<request *>   requests{4, reader_bell, verify_bell};

    // Full trace rings drop events rather than slow a worker down.
    channel<trace_event> draft_trace{32768, draft_bell, reader_bell};
    channel<trace_event> verify_trace{8192, verify_bell, reader_bell};
    bool                 tracing = false; // set before the workers start

    busy_clock draft_busy;
    busy_clock verify_busy;
};

} // namespace duo
