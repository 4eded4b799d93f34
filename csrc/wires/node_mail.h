// The reading end of the ring of nodes, for texts whose targets are in other processes. A draft whose nodes are not
// taken waits, so that a client or a network that is too slow costs memory and steps for a moment only.
#pragma once

#include <cstdint>
#include <vector>

#include "rings/sorted_mail.h"
#include "wires.h"

namespace duo {

// Its owner calls it under one mutex.
class node_mail {
  public:
    node_mail(wires & w, int32_t n_slots) : wires_(w), mail_(w.nodes, n_slots), n_slots_(n_slots) {}

    void sort() {
        mail_.sort();
        for (int32_t i = 0; i < n_slots_; ++i) {
            if (mail_.n_waiting(i) >= wires::n_nodes_each) {
                wires_.signals[size_t(i)].backpressured.store(true, std::memory_order_relaxed);
            }
        }
    }

    // Appends all nodes of the slot that were sorted. False: there was none.
    bool take_all(int32_t slot, std::vector<node_msg> & out) {
        const bool any = mail_.take_all(slot, out);
        let_go_on(slot);
        return any;
    }

    void drop(int32_t slot) {
        mail_.drop(slot);
        let_go_on(slot);
    }

    [[nodiscard]] size_t n_waiting(int32_t slot) const { return mail_.n_waiting(slot); }

  private:
    void let_go_on(int32_t slot) {
        if (wires_.signals[size_t(slot)].backpressured.exchange(false, std::memory_order_relaxed)) {
            wires_.draft_bell.ring();
        }
    }

    wires &               wires_;
    sorted_mail<node_msg> mail_;
    const int32_t         n_slots_;
};

} // namespace duo
