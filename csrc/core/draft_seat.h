// A draft on a host, for a target in another process: one model, one thread, one text at a time.
//
// The host's threads call its methods one at a time. Only take() and give() may run at the same time.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "draft_worker.h"
#include "token_model.h"
#include "wires.h"

namespace duo {

class draft_seat {
  public:
    // The model must outlive it. on_thread: first thing in the worker's thread.
    explicit draft_seat(token_model & model, const std::function<void()> & on_thread = {});
    ~draft_seat();

    draft_seat(const draft_seat &)             = delete;
    draft_seat & operator=(const draft_seat &) = delete;

    // Leading tokens of `prompt` that are cached from the text before, as far as the seat knows.
    [[nodiscard]] int32_t n_cached(std::span<const token_id> prompt) const;

    // begin() and give() throw duo::error for messages that no correct target sends, and pass none of them on.
    void begin(text_params text);
    void give(std::span<const verdict_msg> verdicts);

    // Appends nodes of the text. False: nothing came until the deadline, or the seat is closed.
    bool take(std::vector<node_msg> & out, int64_t deadline_us);

    // Ends the text. False: the worker has not let go of it by the deadline. The seat cannot be used until a later call
    // returns true.
    bool end(int64_t deadline_us);

    void               close() noexcept;
    [[nodiscard]] bool closed() const { return wires_.nodes.closed(); }
    [[nodiscard]] bool taken() const { return text_ != nullptr; }

  private:
    wires                    wires_;
    draft_worker             worker_;
    std::unique_ptr<request> text_;           // the one that the worker has
    std::vector<token_id>    last_;           // prompt of the last text
    size_t                   n_verdicts_ = 0; // of this one
    std::thread              thread_;
};

} // namespace duo
