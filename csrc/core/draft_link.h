// Stands in for a draft in another process: takes the target's verdicts, gives the draft's nodes.
//
// The verify worker sees no difference: it writes verdicts and reads nodes. Two threads use a link: a sender
// (wait_begin, take) and a receiver (ready, lost, give). Each role may pass to another thread under a lock.
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
    // n_vocab: the target's.
    draft_link(std::shared_ptr<wires> w, int32_t n_vocab) : wires_(std::move(w)), n_vocab_(n_vocab) {}
    ~draft_link();

    draft_link(const draft_link &)             = delete;
    draft_link & operator=(const draft_link &) = delete;

    // ---- sender

    // The next text that wants the draft. Verdicts of earlier texts are dropped.
    std::optional<text_params> wait_begin(int64_t deadline_us);

    // Appends verdicts of that text. False: nothing came. An `end` is the last one. If another text begins, an `end` is
    // made for this one.
    bool take(std::vector<verdict_msg> & out, int64_t deadline_us);

    // ---- receiver

    void ready();
    void lost();
    // Nodes from the other process. If one of them could not come from a correct draft, throws duo::error and passes
    // none on.
    void give(std::span<const node_msg> nodes);

    // Any thread.
    void               rtt(int64_t us) { wires_->rtt_us.store(us, std::memory_order_relaxed); }
    [[nodiscard]] bool closed() const { return wires_->verdicts.closed() || wires_->nodes.closed(); }

  private:
    void               let_go();
    [[nodiscard]] bool pop(verdict_msg & v);

    const std::shared_ptr<wires> wires_;
    const int32_t                n_vocab_;

    // The sender's.
    const request *            held_ = nullptr; // the text that the draft works on
    std::optional<verdict_msg> next_;           // a begin that was read while the text before it was running
};

} // namespace duo
