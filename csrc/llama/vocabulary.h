// The vocabulary of a loaded model. Any thread may read it, and it outlives the model's context.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <llama.h>

#include "base/messages.h"

namespace duo {

class vocabulary {
  public:
    // path: the model's file, for error messages.
    vocabulary(std::shared_ptr<const llama_model> model, std::string path)
        : model_(std::move(model)), path_(std::move(path)) {}

    [[nodiscard]] const llama_vocab * get() const { return llama_model_get_vocab(model_.get()); }
    [[nodiscard]] int32_t             n_tokens() const { return llama_vocab_n_tokens(get()); }
    [[nodiscard]] bool                is_end(token_id token) const { return llama_vocab_is_eog(get(), token); }

    // Ids of the tokens that begin and end a text; no_token: none.
    [[nodiscard]] token_id bos() const { return llama_vocab_bos(get()); }
    [[nodiscard]] token_id eos() const { return llama_vocab_eos(get()); }

    // Throws duo::error for an id outside the vocabulary. special: control tokens as text, not as an empty string.
    [[nodiscard]] std::string piece(token_id token, bool special) const;
    // The token's text as in the file. Throws duo::error for an id outside the vocabulary.
    [[nodiscard]] std::string text(token_id token) const;

    // UTF-8 text to ids. parse_special: "<|im_end|>" in the text is that token.
    [[nodiscard]] std::vector<token_id> tokenize(const std::string & text, bool add_special, bool parse_special) const;

    // A hash of the raw texts of at most n ids from `first` on. Equal vocabularies have equal hashes.
    [[nodiscard]] uint64_t hash(int32_t first, int32_t n) const;

  private:
    void check(token_id token) const;

    std::shared_ptr<const llama_model> model_;
    std::string                        path_;
};

} // namespace duo
