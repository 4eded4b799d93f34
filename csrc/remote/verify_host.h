// A target for drafts and readers in other processes: one model, and one pass for the texts of all clients.
//
// It has a place for each text at once. The methods may be called from any thread; of one place, one at a time, except
// that take() may run at the same time as give() or rtt(). Nobody waits for another place's client.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "draft_lines.h"
#include "draft_link.h"
#include "engine/pipeline.h"
#include "rings/shared_ring.h"

namespace duo {

class verify_host {
  public:
    // The model must outlive it. on_thread: first thing in the worker's thread.
    verify_host(token_model & model, int32_t n_places, std::function<void()> on_thread = {});

    // Leading tokens of `prompt` that are cached from the place's last text, as far as the host knows.
    [[nodiscard]] int32_t n_cached(int32_t place, std::span<const token_id> prompt) const;

    // begin() throws duo::error for a text that cannot be generated. begin() and give() throw duo::error for messages
    // that no correct client sends.
    void begin(int32_t place, text_params text);
    // Waits while the target has no room for more nodes of this text.
    void give(int32_t place, std::span<const node_msg> nodes);

    // Appends verdicts, and tokens complete with their alternatives. False: nothing came until the deadline. Throws
    // duo::error (busy) if the client took so little for so long that text was dropped.
    bool take(int32_t place, std::vector<verdict_msg> & verdicts, std::vector<chunk_msg> & chunks, int64_t deadline_us);

    // Returns when the text has ended.
    void cancel(int32_t place) noexcept;
    void close() noexcept { pipeline_.close(); }

    void rtt(int32_t place, int64_t us);
    // Its end was not taken yet.
    [[nodiscard]] bool running(int32_t place) const;
    // What is known of the place's text once it has ended; null: it had none.
    [[nodiscard]] std::shared_ptr<const open_text> current(int32_t place) const;

    [[nodiscard]] int32_t n_places() const { return int32_t(places_.size()); }
    [[nodiscard]] bool    closed() const { return ends_->chunks.closed(); }

  private:
    struct place {
        std::unique_ptr<draft_link> link;
        std::shared_ptr<open_text>  text;
        std::vector<token_id>       last;   // the last text
        std::deque<chunk_msg>       chunks; // of it, that were not taken
        std::vector<chunk_msg>      group;  // a token whose alternatives have not all come
        int32_t                     n_logprobs = 0;
        bool                        dropped    = false; // chunks, because the client takes none

        // A remote draft may begin before the worker here knows of the text. The worker would drop the first nodes, and
        // with them the whole tree. So nodes are kept until the worker has begun.
        bool                  asked = false; // the target has asked for the draft
        bool                  begun = false; // and has got the nodes that came before that
        std::vector<node_msg> early;
    };

    [[nodiscard]] bool runs(int32_t i) const;
    void               sort_chunks();
    [[nodiscard]] bool asked(int32_t i);
    void               take_chunks(int32_t i, std::vector<chunk_msg> & out);
    [[nodiscard]] bool push(int32_t i, std::span<const node_msg> & nodes);

    token_model &                      model_;
    pipeline                           pipeline_;
    const std::shared_ptr<wires>       ends_;
    const std::shared_ptr<draft_lines> lines_;

    mutable std::mutex    mutex_; // of what follows
    std::vector<place>    places_;
    shared_ring<node_msg> nodes_;
};

} // namespace duo
