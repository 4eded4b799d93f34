// Texts with pictures as their drafts read them: each model has its own rows of a picture, and a draft may read none.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "request.h"

namespace duo {

// Of a text that begins with the request's prompt.
inline std::vector<token_id> text_for_draft(const request & req, std::span<const token_id> text) {
    const seen_prompt * prompt = req.pictures.for_draft();
    if (prompt == nullptr) {
        return without_pictures(text);
    }
    std::vector<token_id> tokens = prompt->tokens;
    tokens.insert(tokens.end(), text.begin() + std::ptrdiff_t(std::min(req.prompt.size(), text.size())), text.end());
    return tokens;
}

// So many tokens less than the text has. It may be negative.
[[nodiscard]] inline int32_t n_less_for_draft(const request & req) {
    const seen_prompt * prompt = req.pictures.for_draft();
    return prompt == nullptr ? req.pictures.n_rows() : int32_t(req.prompt.size()) - int32_t(prompt->tokens.size());
}

// What the draft sees of the prompt.
[[nodiscard]] inline picture_spans pictures_for_draft(const request & req) {
    const seen_prompt * prompt = req.pictures.for_draft();
    return prompt == nullptr ? picture_spans() : prompt->pictures;
}

} // namespace duo
