// The readers' side of several texts. Their chunks come through one ring, whose reader must be one thread at a time: a
// thread that waits for its text reads for all, and hands the others their chunks.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "open_text.h"
#include "text/request.h"
#include "wires/wires.h"

namespace duo {

// Every method may be called from any thread.
class text_reader {
  public:
    // n_texts: texts at once. More wait until one has ended, in the order of their begin.
    text_reader(const token_model & model, wires & w, int32_t n_texts);

    // Gives the request a slot and sends it to the target, or queues it. slot: that one (-1: any free one). Throws
    // duo::error if closed, or if the slot is taken.
    std::shared_ptr<open_text> begin(std::unique_ptr<request> req, int32_t slot = -1);

    // Waits until `deadline_us` (now_us() scale) for the text's next chunk. False: nothing came.
    bool next(open_text & text, text_chunk & out, int64_t deadline_us);

    // Waits until `deadline_us` for a chunk of any text. Returns a count of what has come; it returns at once if that
    // is not `seen`. For one thread that reads all texts.
    uint64_t wait_news(uint64_t seen, int64_t deadline_us);

    // The next chunk as it comes from the target, of any text. For a reader that needs no text.
    bool next_raw(chunk_msg & out);

    // Asks for the text's end. Its chunks still come, the last one soon.
    void cancel(open_text & text);
    void cancel_all();
    // begin() fails from now on, and all texts are cancelled.
    void close();
    // Returns when all texts have ended. Their readers still get their chunks.
    void wait_until_idle();

    // The text's last chunk has come.
    [[nodiscard]] bool ended(const open_text & text) const;
    // Texts that have not ended, those in the queue included.
    [[nodiscard]] size_t n_open() const;
    [[nodiscard]] size_t n_queued() const;
    // Ended texts whose requests the draft may still read.
    [[nodiscard]] size_t n_unfreed() const;

  private:
    using texts = std::vector<std::shared_ptr<open_text>>;

    texts                         take_done() noexcept;
    template <typename Done> void read_ring(int64_t deadline_us, std::unique_lock<std::mutex> & locked, Done && done);
    void                          give(const chunk_msg & msg) noexcept;
    void                          lose(open_text & text, failure && why) noexcept;
    void                          tell(open_text & text);
    void                          end(open_text & text);
    void                          start(const std::shared_ptr<open_text> & text, size_t slot);
    void                          start_queued();
    void                          drop_queued();
    void                          pass_on_reading();

    const token_model & model_;
    wires &             wires_;

    mutable std::mutex                     mutex_;
    texts                                  slots_;
    std::deque<std::shared_ptr<open_text>> queue_;
    // The draft may still use their requests. They are freed after the lock, because a hook in Python is freed under
    // the GIL.
    texts                   ended_;
    std::condition_variable idle_;
    std::condition_variable news_;
    uint64_t                n_news_         = 0; // chunks that were handed to texts
    bool                    waits_for_news_ = false;
    bool                    reading_        = false; // a thread reads the ring
    bool                    closed_         = false;
};

} // namespace duo
