// Finds stop strings in the bytes of the text, also across tokens.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace duo {

class stop_matcher {
  public:
    void begin(const std::vector<std::string> & stops) {
        stops_  = stops;
        n_keep_ = 0;
        for (const std::string & s : stops_) {
            n_keep_ = std::max(n_keep_, s.size());
        }
        tail_.clear();
    }

    struct result {
        bool   stopped = false;
        size_t n_drop  = 0; // stopped: bytes at the end of the text from the start of the stop string on
        size_t n_hold  = 0; // else: bytes at the end that may be the beginning of one
    };

    // The text grew by `piece`. The stop string that is complete first wins; if several are, the one that began first.
    result add(std::string_view piece) {
        if (n_keep_ == 0) {
            return {};
        }
        tail_.append(piece);
        size_t first = std::string::npos;
        for (const std::string & s : stops_) {
            first = std::min(first, tail_.find(s));
        }
        if (first != std::string::npos) {
            return {.stopped = true, .n_drop = tail_.size() - first};
        }
        result r;
        for (const std::string & s : stops_) {
            for (size_t n = std::min(s.size() - 1, tail_.size()); n > r.n_hold; --n) {
                if (std::string_view(tail_).substr(tail_.size() - n) == std::string_view(s).substr(0, n)) {
                    r.n_hold = n;
                    break;
                }
            }
        }
        if (tail_.size() > 2 * n_keep_) {
            tail_.erase(0, tail_.size() - n_keep_); // all before it was searched, and n_keep_ covers any held prefix
        }
        return r;
    }

  private:
    std::vector<std::string> stops_; // none empty
    std::string              tail_;
    size_t                   n_keep_ = 0;
};

} // namespace duo
