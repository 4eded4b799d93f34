// The header of one GGUF file as gguf.h reads it. Loading a pair asks for its headers 24 times, and a vocabulary of
// 150,000 tokens takes 20 ms to read, so the headers that were read last are kept until their models are loaded.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include <ggml.h>
#include <gguf.h>

#include "base/freed_by.h"
#include "failed_check.h"

namespace duo {

// Read-only but for the last field, since several handles may share it.
struct parsed_header {
    std::unique_ptr<gguf_context, freed_by<gguf_free>> values;
    std::unique_ptr<ggml_context, freed_by<ggml_free>> tensors;           // shapes without data
    uint64_t                                           n_unpacked = 0;    // bytes of the file that a packed file has
    mutable std::atomic<bool>                          is_checked{false}; // by check_model_file()
};

// False: no GGUF file, or a damaged one. While it lives, what libggml asserts of the header throws.
class gguf_handle {
  public:
    explicit gguf_handle(const std::string & path);

    explicit operator bool() const { return header_->values != nullptr; }

    [[nodiscard]] const gguf_context * get() const { return header_->values.get(); }
    [[nodiscard]] ggml_context *       tensors() const { return header_->tensors.get(); }

    // The file is a packed one, and this is the header of the model's file that it was made from, which had so many
    // bytes. 0: the file is no packed one.
    [[nodiscard]] uint64_t n_unpacked() const { return header_->n_unpacked; }

    // Whether this version of the file was checked before, and notes that it is.
    [[nodiscard]] bool is_checked() const { return header_->is_checked; }
    void               note_checked() const { header_->is_checked = true; }

  private:
    throwing_checks                      checks_;
    std::shared_ptr<const parsed_header> header_;
};

// Its memory, some 10 MB for such a vocabulary, is free again once no handle is left.
void forget_header(const std::string & path);

} // namespace duo
