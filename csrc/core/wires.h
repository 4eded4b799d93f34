// All that connects the threads: rings, bells and clocks.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "channel.h"
#include "clock.h"
#include "request.h"

namespace duo {

// Owned by the engine, which outlives both workers. A link shares it if one of the workers is in another process.
struct wires {
    // one_outside: on a host, where one thread reads both verdicts and text for a client elsewhere.
    explicit wires(bool one_outside = false) : reader_bell(one_outside ? draft_bell : own_reader_bell) {}

    bell   draft_bell;
    bell   verify_bell;
    bell   own_reader_bell;
    bell & reader_bell;

    channel<node_msg>    nodes{1024, draft_bell, verify_bell};
    channel<verdict_msg> verdicts{8192, verify_bell, draft_bell};
    channel<chunk_msg>   chunks{4096, verify_bell, reader_bell};
    channel<request *>   requests{4, reader_bell, verify_bell};

    // A full trace ring drops events instead of making a worker wait.
    channel<trace_event> draft_trace{32768, draft_bell, reader_bell};
    channel<trace_event> verify_trace{8192, verify_bell, reader_bell};
    bool                 tracing = false; // set before the workers start

    // Round trip to a draft in another process, written by its link. Relaxed order is enough, as it guards no other
    // data.
    std::atomic<int64_t> rtt_us{0};

    busy_clock draft_busy;
    busy_clock verify_busy;

    // A link holds the mutex while it uses the request that a message points to. The pipeline takes it and sets `gone`
    // before requests are freed. Nothing else is locked.
    std::mutex link_mutex;
    bool       gone = false;
    // The requests that a target_link gave to the draft. Each is kept until the draft sets its draft_done.
    std::vector<std::unique_ptr<request>> begins;
};

} // namespace duo
