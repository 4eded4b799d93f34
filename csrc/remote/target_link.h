// Stands in for a target in another process, for one text at a time: takes requests and the draft's nodes, gives
// verdicts and text.
//
// The draft worker and the reader see no difference. Two threads use a link: a sender (wait_begin, take) and a receiver
// (give, restart, fail, stopped). Each role may pass to another thread under a lock. wait_begin and restart must not be
// called at the same time. Where several texts are written at once, each has a link.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "message_check.h"
#include "target_lines.h"
#include "text/request.h"

namespace duo {

class target_link {
  public:
    // slot: of its text, at the reader.
    target_link(std::shared_ptr<target_lines> lines, int32_t slot)
        : lines_(std::move(lines)), wires_(lines_->ends), slot_(slot) {}

    target_link(const target_link &)             = delete;
    target_link & operator=(const target_link &) = delete;

    // ---- sender

    // The next text to be generated. The local draft begins with it.
    std::optional<text_params> wait_begin(int64_t deadline_us);

    // Appends the draft's new nodes. False: nothing came, or the caller has stopped the text.
    bool take(std::vector<node_msg> & out, int64_t deadline_us);

    // ---- receiver

    // Messages from the other process. If one of them could not come from a correct target, throws duo::error; the peer
    // must then be given up.
    void give(std::span<const verdict_msg> verdicts, std::span<const chunk_msg> chunks);

    // After the connection was lost: the text that a new connection begins with, so that it goes on where it stopped.
    // The local draft begins anew with it.
    text_params restart();

    // Adds to the figures of the text. Call it before its end is given.
    void add_stats(const verify_stats & part);

    // Ends the text: for a reason, or because its caller stopped it.
    void fail(const failure & why);
    void stopped();

    // Any thread.
    [[nodiscard]] bool running() const { return running_.load(std::memory_order_acquire); }
    [[nodiscard]] bool cancelled() const; // the caller has stopped the text, or the engine closes
    [[nodiscard]] bool closed() const { return wires_->requests.closed(); }

  private:
    // Tokens that the text can have; whatever context the host may claim.
    [[nodiscard]] size_t n_text() const { return std::min(size_t(lines_->n_ctx), n_text_most); }

    void begin_draft();
    void count_draft();
    void count_verdicts(std::span<const verdict_msg> verdicts);
    void check(const chunk_msg & c);
    bool tell_draft(verdict_msg v);
    void send(const chunk_msg & c);
    void end(finish_reason why, const failure & error, int32_t n_drop);

    const std::shared_ptr<target_lines> lines_;
    const std::shared_ptr<wires>        wires_;
    const int32_t                       slot_;

    // running_ hands these from the sender to the receiver: wait_begin sets them, and the receiver uses them while
    // running_ is true. req_ is also guarded by the mutex.
    request *                    req_ = nullptr;
    std::shared_ptr<draft_stats> drafted_;                // figures of what the local draft works on; null: nothing
    text_params                  now_;                    // the text as the next restart would begin it
    int32_t                      n_predicted_    = 0;     // over all connections
    int32_t                      n_alternatives_ = 0;     // of the last token, that have come so far
    size_t                       n_begun_        = 0;     // tokens of the text with which the local draft began
    size_t                       n_verdicts_     = 0;     // since then
    bool                         drafting_       = false; // the local draft takes part and keeps up
    uint64_t                     n_restarts_     = 0;

    std::atomic<bool> running_{false};
};

} // namespace duo
