// A draft on the host: one model, one thread, one text at a time, for a target that is in another process.
//
// Its methods are called by the host's threads, one at a time but for take() beside give().
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

    // Leading tokens of `prompt` that are cached from the text before, as far as that is known here.
    [[nodiscard]] int32_t n_cached(std::span<const token_id> prompt) const;

    // Throws duo::error for what no target would send, here and in give(); nothing of it is passed on then.
    void begin(text_params text);
    void give(std::span<const verdict_msg> verdicts);

    // Appends nodes of the text. False: nothing came until then, or the seat is closed.
    bool take(std::vector<node_msg> & out, int64_t deadline_us);

    // Lets go of the text. False: the worker has not by then; the seat is of no use before a later call says true.
    bool end(int64_t deadline_us);

    void               close() noexcept;
    [[nodiscard]] bool closed() const { return wires_.nodes.closed(); }
    [[nodiscard]] bool taken() const { return text_ != nullptr; }

  private:
    wires                    wires_;
    draft_worker             worker_;
    std::unique_ptr<request> text_;           // that the worker has
    std::vector<token_id>    last_;           // prompt of the last text
    size_t                   n_verdicts_ = 0; // of this one
    std::thread              thread_;
};

} // namespace duo
