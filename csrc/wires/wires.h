// All that connects the threads: rings, bells and clocks.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "rings/channel.h"
#include "rings/feature_ring.h"
#include "text/request.h"
#include "tree/lookup_cache.h"

namespace duo {

// Of one text, beside the rings. Relaxed order is enough, as they guard no other data.
struct slot_signals {
    // Round trip to a draft in another process, written by its link.
    std::atomic<int64_t> rtt_us{0};
    // Many nodes were not taken, so the draft makes no more for this text (node_mail.h). The bell of the draft rings
    // when it goes on.
    std::atomic<bool> backpressured{false};
    // The text went another way than all that the draft evaluates now, so its step may stop. The verdict that says so
    // is on its way.
    std::atomic<bool> step_obsolete{false};
};

// Owned by the engine, which outlives both workers. Links share it if one of the workers is in another process.
struct wires {
    static constexpr size_t n_nodes_each    = 1024; // messages of one text that a ring has room for
    static constexpr size_t n_verdicts_each = 2048;

    // n_texts: texts at once. for_others: on a host. There one thread reads both verdicts and text for a client.
    explicit wires(int32_t n_texts = 1, bool for_others = false)
        : on_host(for_others), reader_bell(for_others ? draft_bell : own_reader_bell),
          nodes(n_nodes_each * size_t(n_texts), draft_bell, verify_bell),
          verdicts(std::max(size_t(8192), n_verdicts_each * size_t(n_texts)), verify_bell, draft_bell),
          requests(std::max(size_t(4), size_t(n_texts)), reader_bell, verify_bell), signals(size_t(n_texts)) {}

    const bool on_host; // texts are those of clients in other processes, and one client must not wait for another

    bell   draft_bell;
    bell   verify_bell;
    bell   own_reader_bell;
    bell & reader_bell;

    channel<node_msg>    nodes;
    channel<verdict_msg> verdicts;
    channel<chunk_msg>   chunks{4096, verify_bell, reader_bell};
    channel<request *>   requests; // has room for one of each text

    // A full trace ring drops events instead of making a worker wait.
    channel<trace_event> draft_trace{32768, draft_bell, reader_bell};
    channel<trace_event> verify_trace{8192, verify_bell, reader_bell};
    bool                 tracing = false; // set before the workers start

    std::vector<slot_signals> signals; // by slot

    // For a draft that reads the target's hidden states; set before the workers start. Null: it reads none.
    std::unique_ptr<feature_ring> features;

    // Of the verify worker; set before it starts, and its own until it has ended. Null: there are no caches.
    std::shared_ptr<lookup_cache> lookup;

    busy_clock draft_busy;
    busy_clock verify_busy;

    // A link holds the mutex while it uses the request that a message points to. The pipeline takes it and sets
    // `requests_freed` before requests are freed. Nothing else is locked.
    std::mutex link_mutex;
    bool       requests_freed = false;
    // The requests that a target_link gave to the draft. Each is kept until the draft sets its draft_done.
    std::vector<std::unique_ptr<request>> begins;
};

} // namespace duo
