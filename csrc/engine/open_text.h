// A text as its reader holds it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "text/request.h"
#include "text_stream.h"

namespace duo {

class open_text {
  public:
    open_text(std::unique_ptr<request> r, const token_model & model)
        : req_(std::move(r)), stream_(model, req_->n_logprobs) {}

    // Its statistics, error and warning are complete when next() has given the last chunk.
    [[nodiscard]] request &       req() { return *req_; }
    [[nodiscard]] const request & req() const { return *req_; }

  private:
    friend class text_reader;

    const std::unique_ptr<request> req_;
    text_stream                    stream_;

    // Under the reader's mutex.
    std::deque<text_chunk>  chunks_;
    std::condition_variable came_;
    int32_t                 n_waiting_ = 0;     // threads that wait for a chunk while another one reads the ring
    bool                    queued_    = false; // waits for a slot
    bool                    ended_     = false; // its last chunk has come
    failure                 lost_;              // why a chunk could not be kept: the text ends with this
    finish_reason           owed_ = finish_reason::none; // of a last chunk that comes after chunks_

    [[nodiscard]] bool has_chunk() const { return !chunks_.empty() || owed_ != finish_reason::none; }
    // The next chunk. There is one.
    void give(text_chunk & out);
};

} // namespace duo
