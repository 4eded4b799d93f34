// Stands in for a draft in another process, for one text at a time: takes the target's verdicts, gives the draft's
// nodes.
//
// The verify worker sees no difference: it writes verdicts and reads nodes. Two threads use a link: a sender
// (wait_begin, take) and a receiver (ready, lost, give). Each role may pass to another thread under a lock. Where
// several texts are written at once, each has a link, and one connection may be lost while the others last.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "draft_lines.h"
#include "text/request.h"

namespace duo {

class draft_link {
  public:
    // slot: of its text, at the reader.
    draft_link(std::shared_ptr<draft_lines> lines, int32_t slot)
        : lines_(std::move(lines)), wires_(lines_->ends), slot_(slot) {}
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
    void               rtt(int64_t us) { wires_->signals[size_t(slot_)].rtt_us.store(us, std::memory_order_relaxed); }
    [[nodiscard]] bool closed() const { return wires_->verdicts.closed() || wires_->nodes.closed(); }

  private:
    void               let_go();
    [[nodiscard]] bool pop(verdict_msg & v);
    void               send(node_msg::kind what);

    const std::shared_ptr<draft_lines> lines_;
    const std::shared_ptr<wires>       wires_;
    const int32_t                      slot_;

    // The sender's.
    const request *            held_ = nullptr; // the text that the draft works on
    std::optional<verdict_msg> next_;           // a begin that was read while the text before it was running
};

} // namespace duo
