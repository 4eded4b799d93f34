// A target on a host, for a draft and a reader in another process: one model, one thread, one text at a time.
//
// The host's threads call its methods one at a time. Only take() may run at the same time as give() or rtt().
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "draft_link.h"
#include "pipeline.h"
#include "same.h"

namespace duo {

class verify_seat {
  public:
    // The model must outlive it. on_thread: first thing in the worker's thread.
    explicit verify_seat(token_model & model, std::function<void()> on_thread = {});

    // Leading tokens of `prompt` that are cached from the text before.
    [[nodiscard]] int32_t n_cached(std::span<const token_id> prompt) const { return n_same(prompt, last_); }

    // begin() throws duo::error for a text that cannot be generated. begin() and give() throw duo::error for messages
    // that no correct client sends.
    void begin(text_params text);
    void give(std::span<const node_msg> nodes);

    // Appends verdicts, and tokens complete with their alternatives. False: nothing came until the deadline.
    bool take(std::vector<verdict_msg> & verdicts, std::vector<chunk_msg> & chunks, int64_t deadline_us);

    // Returns when the text has ended.
    void cancel() noexcept { pipeline_.cancel_all(); }
    void close() noexcept { pipeline_.close(); }

    void                          rtt(int64_t us) { link_.rtt(us); }
    [[nodiscard]] bool            running() const { return pipeline_.running(); }
    [[nodiscard]] const request * current() const { return text_ ? &text_->req() : nullptr; } // null: none yet

  private:
    [[nodiscard]] bool begun();
    void               take_chunks(std::vector<chunk_msg> & out);

    token_model &              model_;
    pipeline                   pipeline_;
    draft_link                 link_;
    std::vector<token_id>      last_; // the last text
    std::shared_ptr<open_text> text_;
    std::vector<chunk_msg>     group_; // a token whose alternatives have not all come
    int32_t                    n_logprobs_ = 0;

    // A remote draft may begin before the worker here knows of the text. The worker would drop the first nodes, and
    // with them the whole tree. So nodes are kept until the worker has begun. The mutex guards both members.
    std::mutex            early_mutex_;
    bool                  begun_ = false; // the target has asked for the draft
    std::vector<node_msg> early_;         // nodes that came before that
};

} // namespace duo
