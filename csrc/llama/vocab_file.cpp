#include "vocab_file.h"

#include <array>

#include "base/error.h"
#include "failed_check.h"
#include "log.h"
#include "model_file.h"
#include "unpacked_file.h"

namespace duo {

vocab_file::vocab_file(const std::string & path) : path_(path) {
    check_model_file(path);
    std::array<ggml_backend_dev_t, 1> no_device{nullptr};
    llama_model_params                params = llama_model_default_params();
    params.devices                           = no_device.data();
    params.vocab_only                        = true;
    log_clear_errors();
    const throwing_checks checks;
    try {
        model_.reset(load_model(path, open_unpacked(path), params), [](llama_model * m) { llama_model_free(m); });
    } catch (const std::exception & e) {
        throw error(error_kind::bad_value, "the vocabulary of " + path + " could not be read: " + e.what());
    }
    if (!model_) {
        throw error(error_kind::bad_value,
                    "the vocabulary of " + path + " could not be read" + log_reason() + "; check the file");
    }
    if (llama_vocab_type(get()) == LLAMA_VOCAB_TYPE_NONE) {
        throw error(error_kind::unknown_model, path + " has no tokenizer; it cannot read a prompt");
    }
}

std::string vocab_file::text(llama_token token) const {
    return token < 0 || token >= llama_vocab_n_tokens(get()) ? "" : llama_vocab_get_text(get(), token);
}

std::string vocab_file::type() const {
    constexpr std::array names = {"none", "spm", "bpe", "wpm", "ugm", "rwkv", "plamo2"};
    const auto           i     = size_t(llama_vocab_type(get()));
    return i < names.size() ? names[i] : std::to_string(i);
}

bool vocab_file::keeps_state() const {
    return llama_model_is_recurrent(model_.get()) || llama_model_is_hybrid(model_.get());
}

} // namespace duo
