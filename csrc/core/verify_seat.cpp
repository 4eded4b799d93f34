#include "verify_seat.h"

#include "message_check.h"

namespace duo {

verify_seat::verify_seat(token_model & model, std::function<void()> on_thread)
    : model_(model),
      pipeline_(&model, nullptr, {.remote_draft = true, .one_outside = true, .on_target_thread = std::move(on_thread)}),
      link_(pipeline_.ends(), model.n_vocab()) {
    link_.ready();
}

void verify_seat::begin(text_params text) {
    check_text(text);
    auto r                         = std::make_unique<request>();
    static_cast<text_params &>(*r) = std::move(text);
    pipeline_.begin(std::move(r));
    last_       = pipeline_.current()->prompt;
    n_logprobs_ = std::max(0, pipeline_.current()->n_logprobs);
    begun_      = false;
    group_.clear();
}

bool verify_seat::take(std::vector<verdict_msg> & verdicts, std::vector<chunk_msg> & chunks, int64_t deadline_us) {
    bell & b = pipeline_.ends()->draft_bell;
    for (;;) {
        const uint32_t heard = b.listen();
        const size_t   n     = verdicts.size() + chunks.size();
        begun_               = begun_ || link_.wait_begin(0).has_value();
        if (begun_) {
            link_.take(verdicts, 0);
        }
        chunk_msg c;
        while (pipeline_.next_chunk(c)) {
            if (c.what == chunk_msg::kind::token) {
                last_.push_back(c.token);
            }
            group_.push_back(c);
            if (c.what == chunk_msg::kind::end || int32_t(group_.size()) > n_logprobs_) {
                chunks.insert(chunks.end(), group_.begin(), group_.end());
                group_.clear();
            }
        }
        if (verdicts.size() + chunks.size() > n) {
            return true;
        }
        if (!running() || link_.closed() || !b.wait(heard, deadline_us)) {
            return false;
        }
    }
}

} // namespace duo
