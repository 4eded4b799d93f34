// Pictures in a prompt: rows without tokens.
//
// A picture is so many rows of the target's cache. In the text each of them has an id that no vocabulary has
// (is_picture). The ids are made of the picture's hash, so all that compares texts by their tokens compares pictures as
// well: the prefix cache, texts in RAM, saved states.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "base/messages.h"

namespace duo {

// What a model that sees makes rows of (llama/projector.h). It does not change.
class picture {
  public:
    virtual ~picture() = default;

    // Positions that its rows take; fewer than rows where positions have two dimensions (M-RoPE).
    [[nodiscard]] virtual int32_t n_pos() const = 0;
};

struct picture_span {
    int32_t                        first  = 0; // index of its first row in the text
    int32_t                        n_rows = 0;
    std::shared_ptr<const picture> content{};

    [[nodiscard]] int32_t end() const { return first + n_rows; }
};

struct seen_prompt;

// Those of one text, in their order.
class picture_spans {
  public:
    picture_spans() = default;
    // for_draft: the text as a draft that sees reads it; null: it does not see.
    explicit picture_spans(std::vector<picture_span> spans, std::shared_ptr<const seen_prompt> for_draft = {})
        : spans_(std::move(spans)), for_draft_(std::move(for_draft)) {}

    [[nodiscard]] bool                              empty() const { return spans_.empty(); }
    [[nodiscard]] const std::vector<picture_span> & all() const { return spans_; }
    [[nodiscard]] const seen_prompt *               for_draft() const { return for_draft_.get(); }

    // The one with this row; null: it is a token.
    [[nodiscard]] const picture_span * at(int32_t row) const {
        const picture_span * s = next(row);
        return s != nullptr && s->first <= row ? s : nullptr;
    }
    // The first one that ends after this row; null: there is none.
    [[nodiscard]] const picture_span * next(int32_t row) const {
        const auto s = std::find_if(spans_.begin(), spans_.end(), [row](const auto & x) { return x.end() > row; });
        return s == spans_.end() ? nullptr : &*s;
    }
    // The most rows, up to n, that end with no part of a picture: a picture is read as a whole.
    [[nodiscard]] int32_t whole(int32_t n) const {
        const picture_span * s = at(n);
        return s == nullptr ? n : s->first;
    }
    // Rows of those that begin before this row.
    [[nodiscard]] int32_t n_rows(int32_t before = std::numeric_limits<int32_t>::max()) const {
        return std::accumulate(spans_.begin(), spans_.end(), int32_t(0), [before](int32_t n, const picture_span & s) {
            return n + (s.first < before ? s.n_rows : 0);
        });
    }

  private:
    std::vector<picture_span>          spans_;
    std::shared_ptr<const seen_prompt> for_draft_;
};

// A prompt as a model reads it.
struct seen_prompt {
    std::vector<token_id> tokens;
    picture_spans         pictures;
};

// The text without its pictures: what a draft reads that does not see.
inline std::vector<token_id> without_pictures(std::span<const token_id> text) {
    std::vector<token_id> tokens;
    tokens.reserve(text.size());
    std::copy_if(text.begin(), text.end(), std::back_inserter(tokens), [](token_id t) { return !is_picture(t); });
    return tokens;
}

} // namespace duo
