// A draft for targets in other processes: one model and one thread. Each step is one batch for the texts of all
// clients.
//
// It has a place for each text at once. The methods may be called from any thread; of one place, one at a time, except
// that take() and give() may run at the same time. Nobody waits for another place's client: what one of them does not
// take waits in its place, and its draft with it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "draft/draft_worker.h"
#include "model/token_model.h"
#include "rings/shared_ring.h"
#include "wires/node_mail.h"
#include "wires/wires.h"

namespace duo {

class draft_host {
  public:
    // The model must outlive it, and have a branch for each place. on_thread: first thing in the worker's thread.
    draft_host(token_model & model, int32_t n_places, const std::function<void()> & on_thread = {});
    ~draft_host();

    draft_host(const draft_host &)             = delete;
    draft_host & operator=(const draft_host &) = delete;

    // Leading tokens of `prompt` that are cached from the place's last text, as far as the host knows.
    [[nodiscard]] int32_t n_cached(int32_t place, std::span<const token_id> prompt) const;

    // begin() and give() throw duo::error for messages that no correct target sends, and pass none of them on.
    void begin(int32_t place, text_params text);
    void give(int32_t place, std::span<const verdict_msg> verdicts);

    // Appends nodes of the place's text. False: nothing came until the deadline, or the host is closed. Throws
    // duo::error (busy) if the client took so little for so long that nodes were dropped.
    bool take(int32_t place, std::vector<node_msg> & out, int64_t deadline_us);

    // Ends the text. False: the worker has not let go of it by the deadline. The place cannot be used until a later
    // call returns true.
    bool end(int32_t place, int64_t deadline_us);

    // Ends all texts and joins the thread.
    void               close() noexcept;
    [[nodiscard]] bool closed() const { return wires_.nodes.closed(); }
    [[nodiscard]] bool taken(int32_t place) const;

    [[nodiscard]] int32_t n_places() const { return int32_t(places_.size()); }

  private:
    struct place {
        std::unique_ptr<request> text;           // the one that the worker has
        std::vector<token_id>    last;           // prompt of the last text
        size_t                   n_verdicts = 0; // of this one
        bool                     end_told   = false;
        bool                     dropped    = false; // nodes, because the client takes none
    };

    void sort_nodes();
    void forget(int32_t i);

    wires        wires_;
    draft_worker worker_;

    mutable std::mutex       mutex_; // of what follows
    std::vector<place>       places_;
    node_mail                nodes_;
    shared_ring<verdict_msg> verdicts_;

    std::thread thread_;
};

} // namespace duo
