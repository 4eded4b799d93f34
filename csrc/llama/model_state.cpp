// llama_token_model: its cache as bytes, in the form of llama.cpp's session files (llama_state_get_data).
#include "../error.h"
#include "log.h"
#include "model.h"

namespace duo {

// Saves the whole context. A single sequence would come without the cells that a sliding window has passed, and a later
// text that shares only a part of this one needs them.
std::string llama_token_model::save() const {
    log_clear_errors();
    std::string  saved(llama_state_get_size(context_.get()), '\0');
    const size_t n = llama_state_get_data(context_.get(), reinterpret_cast<uint8_t *>(saved.data()), saved.size());
    if (n == 0 || n > saved.size()) {
        throw error("the cache of " + opt_.path + " could not be saved" + log_reason());
    }
    saved.resize(n);
    return saved;
}

void llama_token_model::restore(std::span<const char> saved) {
    const llama_memory_t memory = llama_get_memory(context_.get());
    log_clear_errors();
    size_t n = 0;
    if (memory != nullptr) {
        llama_memory_clear(memory, false);
        n = llama_state_set_data(context_.get(), reinterpret_cast<const uint8_t *>(saved.data()), saved.size());
    }
    if (n == 0 || n != saved.size()) {
        if (memory != nullptr) {
            llama_memory_clear(memory, true);
        }
        throw error(error_kind::bad_value, "the saved state does not fit the cache of " + opt_.path + log_reason() +
                                               "; evaluate the text again");
    }
}

} // namespace duo
