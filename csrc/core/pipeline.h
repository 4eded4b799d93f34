// The whole machine without llama.cpp: two workers in two threads, the rings between them, and the reader's end.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "draft_worker.h"
#include "text_stream.h"
#include "verify_worker.h"

namespace duo {

// One caller at a time (the reader); the workers are the pipeline's own. The models must outlive it.
class pipeline {
  public:
    struct options {
        bool                  tracing      = false;
        bool                  remote_draft = false; // a draft_link stands for it
        int32_t               n_ctx_remote = 0;     // > 0: the target is elsewhere, with so large a context
        bool                  one_outside  = false; // see wires
        pair_prior            prior{};
        std::function<void()> on_target_thread{}; // first thing in the thread: CPU affinity
        std::function<void()> on_draft_thread{};
    };

    // draft null: plain decoding only, or the draft is elsewhere. With n_ctx_remote, `target` is null and a target_link
    // stands for it; the draft's vocabulary is the text's.
    pipeline(token_model * target, token_model * draft, const options & opt);
    ~pipeline();

    pipeline(const pipeline &)             = delete;
    pipeline & operator=(const pipeline &) = delete;

    // Starts a request. Throws duo::error if it cannot be served: checked before any work.
    request & begin(std::unique_ptr<request> req);

    // The next piece of text, waiting until `deadline_us` (now_us() scale). False: nothing yet. After the chunk that
    // has finish set, the request's statistics are complete and running() is false.
    bool next(text_chunk & out, int64_t deadline_us);

    // The same as it comes from the target, for a reader elsewhere.
    bool next_chunk(chunk_msg & out);

    // Ends the request soon; what is under way is dropped. Returns when its slot is free.
    void cancel() noexcept;

    // Takes trace events that have come since; the reader's thread.
    void take_trace(std::vector<trace_event> & target, std::vector<trace_event> & draft);

    // For the link that stands for the other half; it may outlive the pipeline, and finds its rings closed then.
    [[nodiscard]] std::shared_ptr<wires> ends() const { return shared_wires_; }

    // What was learned of the pair; while nothing runs (the last chunk of a text releases it to the reader).
    [[nodiscard]] planner & plans() { return verify_worker_ ? verify_worker_->plans() : no_plans_; }

    [[nodiscard]] bool            running() const { return running_; }
    [[nodiscard]] const request * current() const { return requests_.empty() ? nullptr : requests_.back().get(); }

    // Ends everything and joins the threads; begin() fails afterwards.
    void close() noexcept;

  private:
    token_model &                text_model_; // whose vocabulary the text has
    const int32_t                n_ctx_;
    const std::shared_ptr<wires> shared_wires_;
    wires &                      wires_;
    text_stream                  text_;
    planner                      no_plans_; // of a target that is elsewhere nothing is measured here

    std::optional<verify_worker> verify_worker_;
    std::optional<draft_worker>  draft_worker_;

    std::vector<std::unique_ptr<request>> requests_; // the last one, and older ones that a slow draft still holds
    uint64_t                              n_requests_ = 0;
    bool                                  running_    = false;
    bool                                  closed_     = false;

    std::thread verify_thread_;
    std::thread draft_thread_;
};

} // namespace duo
