// The vocabulary of a GGUF file without its weights: what pair_check looks at.
#pragma once

#include <memory>
#include <string>

#include <llama.h>

namespace duo {

class vocab_file {
  public:
    // Throws duo::error: see check_model_file; a file without a tokenizer.
    explicit vocab_file(const std::string & path);

    [[nodiscard]] const llama_vocab * get() const { return llama_model_get_vocab(model_.get()); }

    // ggml's text of a token; empty for none (-1).
    [[nodiscard]] std::string text(llama_token token) const;

    // "spm", "bpe", ...: the kind of tokenizer, and "none" if there is none.
    [[nodiscard]] std::string type() const;

    // The memory of such a model cannot be rolled back after a wrong guess.
    [[nodiscard]] bool keeps_state() const;

  private:
    struct closer {
        void operator()(llama_model * m) const { llama_model_free(m); }
    };
    std::unique_ptr<llama_model, closer> model_;
};

} // namespace duo
