// Which rows of a prompt are pictures. A picture is read as a whole, in a pass of its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "text/draft_prompt.h"
#include "verify_slot.h"

namespace duo {

// Rows of the picture that is to be read next. 0: the next row is a token.
[[nodiscard]] inline size_t n_of_picture(const verify_slot & s) {
    const picture_span * next = s.text.req().pictures.at(int32_t(s.cached.size()));
    return next == nullptr ? 0 : size_t(next->n_rows);
}

// Missing rows before the next picture. SIZE_MAX: there is none.
[[nodiscard]] inline size_t n_to_picture(const verify_slot & s) {
    const picture_span * next = s.text.req().pictures.next(int32_t(s.cached.size()));
    return next == nullptr ? SIZE_MAX : size_t(next->first) - std::min(size_t(next->first), s.cached.size());
}

// Leading rows of the text, up to n, that end with no part of a picture.
[[nodiscard]] inline size_t whole_pictures(const verify_slot & s, size_t n) {
    return size_t(s.text.req().pictures.whole(int32_t(n)));
}

// Tokens of the text as its draft reads it.
[[nodiscard]] inline int32_t n_for_draft(const verify_slot & s) {
    return int32_t(s.text.context().tokens().size()) - n_less_for_draft(s.text.req());
}

} // namespace duo
