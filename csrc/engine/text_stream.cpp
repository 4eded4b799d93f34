#include "text_stream.h"

#include <algorithm>

#include "base/utf8.h"

namespace duo {

std::string text_stream::release(size_t n_keep) {
    const size_t      n = bytes_.size() - std::min(n_keep, bytes_.size());
    const std::string s = utf8_valid(bytes_.substr(0, n));
    bytes_.erase(0, n);
    return s;
}

bool text_stream::take(const chunk_msg & msg, text_chunk & out) {
    switch (msg.what) {
        case chunk_msg::kind::token:
            pending_            = {};
            n_alternatives_     = 0;
            pending_.token      = msg.token;
            pending_.from_draft = msg.from_draft;
            pending_.logp       = msg.logp;
            pending_.t_us       = msg.t_us;
            if (!msg.hidden) {
                bytes_ += model_.piece(msg.token);
                const auto   n_hold = size_t(msg.n_hold);
                const size_t n_free = bytes_.size() - std::min(n_hold, bytes_.size());
                pending_.text       = release(bytes_.size() - n_free + utf8_incomplete(bytes_.substr(0, n_free)));
            }
            break;
        case chunk_msg::kind::logprob:
            ++n_alternatives_;
            if (msg.token != no_token) {
                pending_.top.push_back({.token = msg.token, .logp = msg.logp});
            }
            break;
        case chunk_msg::kind::end:
            bytes_.resize(bytes_.size() - std::min(size_t(msg.n_drop), bytes_.size()));
            out        = {};
            out.text   = release(0);
            out.finish = msg.finish;
            out.t_us   = msg.t_us;
            return true;
    }
    // A token's alternatives come after it.
    const bool complete = n_alternatives_ >= n_logprobs_;
    if (complete) {
        out = std::move(pending_);
    }
    return complete;
}

} // namespace duo
