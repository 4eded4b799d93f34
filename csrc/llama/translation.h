// Between the vocabularies of a target and a draft that are not the same. A token of the target is read as the draft's
// tokens that spell its text, and a token of the draft is proposed as the target's token that its text begins with.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/messages.h"
#include "vocabulary.h"

namespace duo {

// Any thread may read it. Each token is translated by itself, whatever is beside it, so no text is tokenized again. All
// that depends on it is how often the draft is right. Other ways: arXiv 2502.05202, and Transformers' universal
// assisted generation, which tokenizes the text's end again.
class translation {
  public:
    static constexpr size_t n_most = 8; // tokens of the draft for one of the target: the last ones of a longer piece

    // Takes as long as tokenizing both vocabularies.
    translation(const vocabulary & target, const vocabulary & draft);

    [[nodiscard]] int32_t n_target() const { return int32_t(first_.size()) - 1; }
    // The draft's tokens for one of the target's, from 1 to n_most.
    [[nodiscard]] std::span<const token_id> read(token_id of_target) const {
        const auto i = size_t(of_target);
        return std::span(read_).subspan(size_t(first_[i]), size_t(first_[i + 1] - first_[i]));
    }
    // The draft's token before each text; no_token: it was trained without one.
    [[nodiscard]] token_id bos() const { return bos_; }
    // The target's token for one of the draft's; no_token: there is none.
    [[nodiscard]] token_id write(token_id of_draft) const { return write_[size_t(of_draft)]; }
    // Texts that are tokens of both: the share of those of the smaller vocabulary.
    [[nodiscard]] double shared() const { return shared_; }
    // With fewer of them hardly a guess could be right.
    [[nodiscard]] bool is_of_use() const { return shared_ >= 0.1; }

  private:
    std::vector<token_id> read_;
    std::vector<int32_t>  first_; // of each of the target's tokens in read_
    std::vector<token_id> write_; // by the draft's token
    token_id              bos_    = no_token;
    double                shared_ = 0.0;
};

// The tokens of a vocabulary by their texts.
class spelling {
  public:
    explicit spelling(const vocabulary & v);

    [[nodiscard]] int32_t n_texts() const { return int32_t(by_text_.size()); }
    // The ordinary token with this text; no_token: none.
    [[nodiscard]] token_id find(std::string_view text) const;
    // The token with this name in the file, such as "<|im_end|>"; no_token: none.
    [[nodiscard]] token_id named(std::string_view name) const;
    // Tokens that spell the text, the longest first. What no token spells is left out.
    [[nodiscard]] std::vector<token_id> spell(std::string_view text) const;

  private:
    std::unordered_map<std::string, token_id> by_text_;
    std::unordered_map<std::string, token_id> by_name_; // of control tokens
    size_t                                    n_longest_ = 0;
};

} // namespace duo
