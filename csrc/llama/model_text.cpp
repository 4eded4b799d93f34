// llama_token_model: text conversion and properties of the model; any thread may call these.
#include <algorithm>
#include <cstdint>
#include <exception>

#include "base/error.h"
#include "model.h"

namespace duo {

bool llama_token_model::is_end(token_id token) const {
    return llama_vocab_is_eog(vocab(), token);
}

std::string llama_token_model::piece(token_id token) const {
    return piece(token, false);
}

std::string llama_token_model::piece(token_id token, bool special) const {
    if (token < 0 || token >= n_vocab_) {
        throw error(error_kind::bad_value, "token id " + std::to_string(token) + " is outside the vocabulary (0 to " +
                                               std::to_string(n_vocab_ - 1) + ")");
    }
    std::string text(64, '\0');
    try {
        int32_t n = llama_token_to_piece(vocab(), token, text.data(), int32_t(text.size()), 0, special);
        if (n < 0) {
            text.resize(size_t(-n));
            n = llama_token_to_piece(vocab(), token, text.data(), int32_t(text.size()), 0, special);
        }
        text.resize(size_t(std::max(n, 0)));
    } catch (const std::exception & e) {
        throw error(error_kind::bad_value, "the vocabulary of " + opt_.path + " has no text for token " +
                                               std::to_string(token) + " (" + e.what() +
                                               "); download or convert it again");
    }
    return text;
}

std::vector<token_id> llama_token_model::tokenize(const std::string & text, bool add_special,
                                                  bool parse_special) const {
    if (text.size() > INT32_MAX - 8) {
        throw error(error_kind::context_full,
                    "a text of " + std::to_string(text.size()) + " bytes is longer than any context; shorten it");
    }
    std::vector<token_id> ids(text.size() + 8);
    const auto            fill = [&] {
        return llama_tokenize(vocab(), text.data(), int32_t(text.size()), ids.data(), int32_t(ids.size()), add_special,
                                         parse_special);
    };
    try {
        int32_t n = fill();
        if (n < 0) {
            ids.resize(size_t(-n));
            n = fill();
        }
        ids.resize(size_t(std::max(n, 0)));
    } catch (const std::exception & e) {
        throw error(error_kind::bad_value, "the vocabulary of " + opt_.path + " has no token for a part of the text (" +
                                               e.what() + "); download or convert it again");
    }
    return ids;
}

std::string llama_token_model::token_text(token_id token) const {
    if (token < 0 || token >= n_vocab_) {
        throw error(error_kind::bad_value, "token id " + std::to_string(token) + " is outside the vocabulary (0 to " +
                                               std::to_string(n_vocab_ - 1) + ")");
    }
    return llama_vocab_get_text(vocab(), token);
}

// FNV-1a over the texts and their ends (Fowler, Noll, Vo; 64 bits).
uint64_t llama_token_model::vocab_hash(int32_t first, int32_t n) const {
    uint64_t h = 0xcbf29ce484222325ull;
    for (int32_t i = std::max(0, first); i < n_vocab_ && i - first < n; ++i) {
        const char * c = llama_vocab_get_text(vocab(), i);
        do {
            h = (h ^ uint8_t(*c)) * 0x100000001b3ull;
        } while (*c++ != '\0');
    }
    return h;
}

std::string llama_token_model::description() const {
    std::string   text(128, '\0');
    const int32_t n = llama_model_desc(model_.get(), text.data(), text.size());
    text.resize(std::min(text.size() - 1, size_t(std::max(n, 0))));
    return text;
}

std::string llama_token_model::meta(const std::string & key) const {
    std::string   text(256, '\0');
    const int32_t n = llama_model_meta_val_str(model_.get(), key.c_str(), text.data(), text.size());
    if (n < 0) {
        return {};
    }
    if (size_t(n) >= text.size()) {
        text.resize(size_t(n) + 1);
        llama_model_meta_val_str(model_.get(), key.c_str(), text.data(), text.size());
    }
    text.resize(size_t(n));
    return text;
}

} // namespace duo
