// Stands for a target that is in another process: takes requests and the draft's nodes, gives verdicts and text.
//
// The draft worker and the reader see no difference. Two threads use a link: a sender (wait_begin, take) and a receiver
// (give, restart, fail, stopped); each role may pass from one thread to another under a lock, and wait_begin and
// restart are not called at the same time.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "request.h"
#include "wires.h"

namespace duo {

class target_link {
  public:
    // n_vocab: of the draft, which is the text's here; n_ctx: of the target.
    target_link(std::shared_ptr<wires> w, int32_t n_vocab, int32_t n_ctx)
        : wires_(std::move(w)), n_vocab_(n_vocab), n_ctx_(n_ctx) {}

    target_link(const target_link &)             = delete;
    target_link & operator=(const target_link &) = delete;

    // ---- sender

    // The next text that is to be written. The draft here begins with it.
    std::optional<text_params> wait_begin(int64_t deadline_us);

    // Appends what the draft has made. False: nothing came; also when the caller has stopped the text.
    bool take(std::vector<node_msg> & out, int64_t deadline_us);

    // ---- receiver

    // From the other process. Throws duo::error for what no target would send; nothing of it is passed on then.
    void give(std::span<const verdict_msg> verdicts, std::span<const chunk_msg> chunks);

    // The link was lost: what a new one has to begin with, so that the text goes on where it stopped. The draft here
    // begins anew with it.
    text_params restart();

    // Adds to the figures of the text; before its end is given.
    void add_stats(const verify_stats & part);

    // Ends the text: for a reason, or because its caller stopped it.
    void fail(const std::string & why);
    void stopped();

    // Any thread.
    [[nodiscard]] bool running() const { return running_.load(std::memory_order_acquire); }
    [[nodiscard]] bool cancelled() const; // the caller has stopped the text, or the engine closes
    [[nodiscard]] bool closed() const { return wires_->requests.closed(); }

  private:
    void begin_draft();
    void count_draft();
    void check(const chunk_msg & c);
    void end(finish_reason why, const std::string & error, int32_t n_drop);

    const std::shared_ptr<wires> wires_;
    const int32_t                n_vocab_;
    const int32_t                n_ctx_;

    // They change hands with running_: set by wait_begin, used by the receiver from then on. req_ also under the mutex.
    request *       req_           = nullptr;
    const request * draft_request_ = nullptr; // what the draft here works on
    text_params     now_;                     // as the next restart would have it
    int32_t         n_predicted_    = 0;      // all in all
    int32_t         n_alternatives_ = 0;      // of the last token, that have come
    bool            drafting_       = false;  // the draft here keeps up
    uint64_t        n_restarts_     = 0;

    std::atomic<bool> running_{false};
};

} // namespace duo
