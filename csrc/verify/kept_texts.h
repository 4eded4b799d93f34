// Texts that had to leave the target's cache, in RAM. A later text that begins like one of them gets its cells back.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <vector>

#include "base/messages.h"
#include "text/lora_scales.h"

namespace duo {

constexpr int64_t kept_without_limit = -1;

// Belongs to the verify worker's thread. What was not used for the longest time goes first.
class kept_texts {
  public:
    struct text {
        std::vector<token_id> tokens;
        std::string           saved; // as token_model::save() gives it
        lora_scales           scales{};

        [[nodiscard]] int64_t bytes() const { return int64_t(saved.size() + tokens.size() * sizeof(token_id)); }
    };

    // n_bytes_most: of all texts; 0: none is kept; kept_without_limit: all are.
    explicit kept_texts(int64_t n_bytes_most) : n_bytes_most_(n_bytes_most) {}

    // Whether the text should be saved: texts are kept, and no kept one begins with it. If one does, it counts as used.
    [[nodiscard]] bool wants(std::span<const token_id> tokens, const lora_scales & scales);
    // Whether a text of so many bytes has room, if the others go.
    [[nodiscard]] bool fits(int64_t n_bytes) const { return n_bytes_most_ < 0 || n_bytes <= n_bytes_most_; }
    // Keeps it instead of those that it begins with. The oldest ones go if there is no room, or the text itself if it
    // is larger than all the room.
    void add(std::span<const token_id> tokens, std::string && saved, const lora_scales & scales);

    // The text that has the longest beginning in common with these tokens, computed with the same scales; null: none
    // has any. It counts as used, and is valid until the next call of add() or drop().
    [[nodiscard]] const text * find(std::span<const token_id> tokens, const lora_scales & scales);
    // Forgets a text that find() gave.
    void drop(const text & t);

    [[nodiscard]] int64_t bytes() const { return n_bytes_; }
    [[nodiscard]] size_t  size() const { return texts_.size(); }

  private:
    void erase(std::list<text>::iterator t);

    const int64_t   n_bytes_most_;
    int64_t         n_bytes_ = 0;
    std::list<text> texts_; // the last one was used last
};

} // namespace duo
