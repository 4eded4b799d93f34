#include "kept_texts.h"

#include <algorithm>
#include <utility>

#include "base/same.h"

namespace duo {

namespace {
// Leading tokens of the text that these cells could be used for.
size_t n_of_use(const kept_texts::text & t, std::span<const token_id> tokens, const lora_scales & scales) {
    return t.scales == scales ? size_t(n_same(t.tokens, tokens)) : 0;
}
} // namespace

bool kept_texts::wants(std::span<const token_id> tokens, const lora_scales & scales) {
    if (n_bytes_most_ == 0) {
        return false;
    }
    const auto longer = std::find_if(texts_.begin(), texts_.end(),
                                     [&](const text & t) { return n_of_use(t, tokens, scales) == tokens.size(); });
    if (longer == texts_.end()) {
        return true;
    }
    texts_.splice(texts_.end(), texts_, longer);
    return false;
}

void kept_texts::add(std::span<const token_id> tokens, std::string && saved, const lora_scales & scales) {
    text fresh{{tokens.begin(), tokens.end()}, std::move(saved), scales};
    if (!fits(fresh.bytes())) {
        return;
    }
    for (auto t = texts_.begin(); t != texts_.end();) {
        const auto here = t++;
        if (n_of_use(*here, tokens, scales) == here->tokens.size()) {
            erase(here);
        }
    }
    while (!fits(n_bytes_ + fresh.bytes())) {
        erase(texts_.begin());
    }
    n_bytes_ += fresh.bytes();
    texts_.push_back(std::move(fresh));
}

const kept_texts::text * kept_texts::find(std::span<const token_id> tokens, const lora_scales & scales) {
    auto   best   = texts_.end();
    size_t n_best = 0;
    for (auto t = texts_.begin(); t != texts_.end(); ++t) {
        const size_t n = n_of_use(*t, tokens, scales);
        // Of equal ones the shortest: fewer cells have to come back.
        if (n > n_best || (n > 0 && n == n_best && t->tokens.size() < best->tokens.size())) {
            best   = t;
            n_best = n;
        }
    }
    if (best == texts_.end()) {
        return nullptr;
    }
    texts_.splice(texts_.end(), texts_, best);
    return &*best;
}

void kept_texts::drop(const text & t) {
    const auto here = std::find_if(texts_.begin(), texts_.end(), [&t](const text & x) { return &x == &t; });
    if (here != texts_.end()) {
        erase(here);
    }
}

void kept_texts::erase(std::list<text>::iterator t) {
    n_bytes_ -= t->bytes();
    texts_.erase(t);
}

} // namespace duo
