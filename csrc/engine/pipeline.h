// The whole engine without llama.cpp: two workers in two threads, the rings between them, and the readers' side.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "draft/draft_worker.h"
#include "text_reader.h"
#include "verify/verify_worker.h"

namespace duo {

// Texts are begun, read and cancelled from any thread, each text by one thread at a time. The models must outlive it.
class pipeline {
  public:
    struct options {
        bool                          tracing      = false;
        bool                          remote_draft = false; // a draft_link stands in for it
        int32_t                       n_ctx_remote = 0; // > 0: the target is elsewhere and has a context of this size
        bool                          on_host      = false; // see wires
        int32_t                       n_texts      = 1;     // texts at once; more wait in a queue
        int64_t                       n_kept_bytes = 0;     // see kept_texts
        pair_prior                    prior{};
        std::shared_ptr<lookup_cache> lookup{};           // see wires
        std::function<void()>         on_target_thread{}; // first thing in the thread: CPU affinity
        std::function<void()>         on_draft_thread{};
    };

    // `draft` null: plain decoding only, or the draft is elsewhere. With n_ctx_remote, `target` is null, a target_link
    // stands in for it, and the text has the draft's vocabulary.
    pipeline(token_model * target, token_model * draft, const options & opt);
    ~pipeline();

    pipeline(const pipeline &)             = delete;
    pipeline & operator=(const pipeline &) = delete;

    // Starts a request, or puts it into the queue. slot: on a host, which chooses it; -1: the first free one. Throws
    // duo::error if it cannot be served, before any work is done.
    std::shared_ptr<open_text> begin(std::unique_ptr<request> req, int32_t slot = -1);

    // The text's next piece, waiting until `deadline_us` (now_us() scale). False: nothing yet, or nothing more. After
    // the chunk that has finish set, the request's statistics are complete.
    bool next(open_text & text, text_chunk & out, int64_t deadline_us);

    uint64_t wait_news(uint64_t seen, int64_t deadline_us) { return reader_.wait_news(seen, deadline_us); }

    // The next chunk as it comes from the target, for a remote reader.
    bool next_chunk(chunk_msg & out) { return reader_.next_raw(out); }

    // Ends the text soon and drops the rest of it. Returns when it has ended.
    void cancel(open_text & text) noexcept;
    // The same for a reader of chunks: the last one is still to be read.
    void ask_to_end(open_text & text) { reader_.cancel(text); }
    void cancel_all() noexcept;

    // Takes the trace events that have come since the last call. For the reader's thread.
    void take_trace(std::vector<trace_event> & target, std::vector<trace_event> & draft);

    // For the link that stands in for the other half. It may outlive the pipeline, whose rings are closed then.
    [[nodiscard]] std::shared_ptr<wires> ends() const { return shared_wires_; }

    // Calls use(planner) with what was learned about the pair. No text begins meanwhile. The last chunk of a text
    // releases it to the caller. Throws duo::error (busy) if a text is being written.
    void with_plans(const std::function<void(planner &)> & use);

    [[nodiscard]] bool   running() const { return reader_.n_open() > 0; }
    [[nodiscard]] bool   ended(const open_text & text) const { return reader_.ended(text); }
    [[nodiscard]] size_t n_queued() const { return reader_.n_queued(); }
    // What the workers hold. From any thread.
    [[nodiscard]] engine_usage usage() const;
    // The text that was begun last; null: none.
    [[nodiscard]] std::shared_ptr<open_text> current() const;

    // Ends everything and joins the threads; begin() fails afterwards.
    void close() noexcept;

  private:
    void check_prompt(const request & req) const;
    void start_threads(const options & opt);

    token_model &                text_model_; // the model whose vocabulary the text has
    const int32_t                n_ctx_;
    const std::shared_ptr<wires> shared_wires_;
    wires &                      wires_;
    text_reader                  reader_;
    planner                      no_plans_; // empty: nothing is measured here if the target is elsewhere

    std::optional<verify_worker> verify_worker_;
    std::optional<draft_worker>  draft_worker_;

    mutable std::mutex         mutex_; // of what follows
    std::shared_ptr<open_text> last_;
    uint64_t                   n_requests_ = 0;
    bool                       closed_     = false;

    std::thread verify_thread_;
    std::thread draft_thread_;
};

} // namespace duo
