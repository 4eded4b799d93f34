// The header of one GGUF file as gguf.h reads it, freed with its owner.
#pragma once

#include <memory>
#include <string>

#include <ggml.h>
#include <gguf.h>

#include "failed_check.h"

namespace duo {

// False: no GGUF file, or a damaged one. While it lives, what libggml asserts of the header throws.
class gguf_handle {
  public:
    explicit gguf_handle(const std::string & path, bool with_tensors = true) {
        ggml_context * tensors = nullptr;
        header_.reset(gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = with_tensors ? &tensors : nullptr}));
        tensors_.reset(tensors);
    }

    explicit operator bool() const { return header_ != nullptr; }

    [[nodiscard]] gguf_context * get() const { return header_.get(); }
    [[nodiscard]] ggml_context * tensors() const { return tensors_.get(); } // shapes without data

  private:
    struct closer {
        void operator()(gguf_context * g) const { gguf_free(g); }
        void operator()(ggml_context * g) const { ggml_free(g); }
    };

    throwing_checks                       checks_;
    std::unique_ptr<gguf_context, closer> header_;
    std::unique_ptr<ggml_context, closer> tensors_;
};

} // namespace duo
