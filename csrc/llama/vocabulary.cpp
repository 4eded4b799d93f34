#include "vocabulary.h"

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "failed_check.h"
#include "text_runs.h"

namespace duo {

void vocabulary::check(token_id token) const {
    if (token < 0 || token >= n_tokens()) {
        throw error(error_kind::bad_value, "token id " + std::to_string(token) + " is outside the vocabulary (0 to " +
                                               std::to_string(n_tokens() - 1) + ")");
    }
}

std::string vocabulary::piece(token_id token, bool special) const {
    check(token);
    std::string text(64, '\0');
    try {
        const throwing_checks checks;
        int32_t               n = llama_token_to_piece(get(), token, text.data(), int32_t(text.size()), 0, special);
        if (n < 0) {
            text.resize(size_t(-n));
            n = llama_token_to_piece(get(), token, text.data(), int32_t(text.size()), 0, special);
        }
        text.resize(size_t(std::max(n, 0)));
    } catch (const std::exception & e) {
        throw error(error_kind::bad_value, "the vocabulary of " + path_ + " has no text for token " +
                                               std::to_string(token) + " (" + e.what() +
                                               "); download or convert it again");
    }
    return text;
}

std::string vocabulary::text(token_id token) const {
    check(token);
    return llama_vocab_get_text(get(), token);
}

std::vector<token_id> vocabulary::tokenize(const std::string & text, bool add_special, bool parse_special) const {
    if (text.size() > INT32_MAX - 8) {
        throw error(error_kind::context_full,
                    "a text of " + std::to_string(text.size()) + " bytes is longer than any context; shorten it");
    }
    std::vector<token_id> ids(text.size() + 8);
    const auto            fill = [&] {
        return llama_tokenize(get(), text.data(), int32_t(text.size()), ids.data(), int32_t(ids.size()), add_special,
                                         parse_special);
    };
    const auto read = [&] {
        const throwing_checks checks; // of a file that names no separator, for example
        int32_t               n = fill();
        if (n < 0) {
            ids.resize(size_t(-n));
            n = fill();
        }
        ids.resize(size_t(std::max(n, 0)));
    };
    try {
        with_stack_for(longest_run(text), read);
    } catch (const error &) {
        throw;
    } catch (const std::exception & e) {
        throw error(error_kind::bad_value, "the vocabulary of " + path_ + " has no token for a part of the text (" +
                                               e.what() + "); download or convert it again");
    }
    return ids;
}

// FNV-1a over the texts and their ends (Fowler, Noll, Vo; 64 bits).
uint64_t vocabulary::hash(int32_t first, int32_t n) const {
    uint64_t h = 0xcbf29ce484222325ull;
    for (int32_t i = std::max(0, first); i < n_tokens() && i - first < n; ++i) {
        const char * c = llama_vocab_get_text(get(), i);
        do {
            h = (h ^ uint8_t(*c)) * 0x100000001b3ull;
        } while (*c++ != '\0');
    }
    return h;
}

} // namespace duo
