// The vocabulary of a GGUF file without its weights, for pair_check.
#pragma once

#include <memory>
#include <string>

#include <llama.h>

#include "vocabulary.h"

namespace duo {

class vocab_file {
  public:
    // Throws duo::error as check_model_file does, and for a file without a tokenizer.
    explicit vocab_file(const std::string & path);

    [[nodiscard]] const llama_vocab * get() const { return llama_model_get_vocab(model_.get()); }

    [[nodiscard]] duo::vocabulary words() const { return {model_, path_}; }

    // ggml's text of a token; empty for none (-1).
    [[nodiscard]] std::string text(llama_token token) const;

    // The kind of tokenizer: "spm", "bpe", ...; "none" if there is none.
    [[nodiscard]] std::string type() const;

    // Whether the model is recurrent or hybrid, so that its memory cannot go back to any position.
    [[nodiscard]] bool keeps_state() const;

  private:
    std::string                  path_;
    std::shared_ptr<llama_model> model_;
};

} // namespace duo
