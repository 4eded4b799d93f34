// Pictures in the prompt of a draft that sees. Each is read as a whole, in a step of its own.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cached_text.h"

namespace duo {

// The one with which the rows begin that are to be read next. Null: they begin with a token.
[[nodiscard]] inline const picture_span * next_picture(cached_text & text) {
    return text.pictures().at(text.trunk().n_text());
}

// Of the next n rows those that a step can have: a whole picture, or tokens up to one.
[[nodiscard]] inline int32_t one_kind(cached_text & text, int32_t n) {
    const int32_t        n_text = text.trunk().n_text();
    const picture_span * next   = text.pictures().next(n_text);
    if (next == nullptr) {
        return n;
    }
    return next->first <= n_text ? next->n_rows : std::min(n, next->first - n_text);
}

} // namespace duo
