#include "ngram_pool.h"

#include <algorithm>

namespace duo {

// Whether a text in the pool has its last tokens.
bool ngram_pool::has(std::span<const token_id> text) const {
    ngram_proposal next;
    return text.size() > size_t(n_match_most) && propose(text.first(text.size() - 1), {}, 1, next) &&
           next.n_match == n_match_most && next.tokens.front() == text.back();
}

void ngram_pool::add(std::span<const token_id> text, size_t n_known) noexcept {
    try {
        n_known          = std::min(n_known, text.size());
        n_known          = has(text.first(n_known)) ? n_known - size_t(n_match_most) : 0; // by which the rest is found
        const auto fresh = text.subspan(n_known);
        const auto part  = fresh.last(std::min(fresh.size(), n_tokens_most / 4));
        const bool full  = book_.size() + part.size() + 1 > n_tokens_most;
        if (full) {
            book_.erase(book_.begin(), book_.end() - ptrdiff_t(n_tokens_most / 2));
        }
        const bool anew = full || book_.empty();
        book_.insert(book_.end(), part.begin(), part.end());
        book_.push_back(behind);
        if (anew) {
            index_.begin(params, book_, keys);
        } else {
            index_.add(book_);
        }
    } catch (...) {
        book_  = {};
        index_ = {};
    }
}

bool ngram_pool::propose(std::span<const token_id> text, std::span<const token_id> tail, int32_t n_max,
                         ngram_proposal & out) const {
    if (book_.empty()) {
        return false;
    }
    const size_t n_tail = std::min(tail.size(), size_t(n_match_most));
    const size_t n_text = std::min(text.size(), size_t(n_match_most) - n_tail);
    end_.assign(text.end() - ptrdiff_t(n_text), text.end());
    end_.insert(end_.end(), tail.end() - ptrdiff_t(n_tail), tail.end());
    return index_.propose(book_, end_, n_max, std::span(&out, 1)) == 1 && !out.tokens.empty();
}

} // namespace duo
