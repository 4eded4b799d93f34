// Stands for a draft that is in another process: takes what the target says, gives what the draft says.
//
// The verify worker sees no difference: it writes verdicts and reads nodes. Two threads use a link: a sender
// (wait_begin, take) and a receiver (ready, lost, give); each of the two roles may pass from one thread to another
// under a lock.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "request.h"
#include "wires.h"

namespace duo {

class draft_link {
  public:
    // n_vocab: of the target.
    draft_link(std::shared_ptr<wires> w, int32_t n_vocab) : wires_(std::move(w)), n_vocab_(n_vocab) {}
    ~draft_link();

    draft_link(const draft_link &)             = delete;
    draft_link & operator=(const draft_link &) = delete;

    // ---- sender

    // The next text that wants the draft. What is said of texts before it is dropped.
    std::optional<text_params> wait_begin(int64_t deadline_us);

    // Appends verdicts of that text. False: nothing came. An `end` is the last one; another text's begin makes one.
    bool take(std::vector<verdict_msg> & out, int64_t deadline_us);

    // ---- receiver

    void ready();
    void lost();
    // Nodes from the other process. Throws duo::error for what no draft would send; nothing of it is passed on then.
    void give(std::span<const node_msg> nodes);

    // Any thread.
    void               rtt(int64_t us) { wires_->rtt_us.store(us, std::memory_order_relaxed); }
    [[nodiscard]] bool closed() const { return wires_->verdicts.closed() || wires_->nodes.closed(); }

  private:
    void               let_go();
    [[nodiscard]] bool pop(verdict_msg & v);

    const std::shared_ptr<wires> wires_;
    const int32_t                n_vocab_;

    // Sender's.
    const request *            held_ = nullptr; // the text that the draft works on
    std::optional<verdict_msg> next_;           // a begin that was met before its time
};

} // namespace duo
