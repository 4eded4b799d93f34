#include "dry_breakers.h"

#include <algorithm>

#include "base/messages.h"

namespace duo {

namespace {

constexpr size_t n_tail_most = 20; // tokens

// The text of one token, also of a control token.
void text_of(const llama_vocab * vocab, token_id token, std::string & text) {
    text.resize(std::max<size_t>(text.capacity(), 64));
    int32_t n = llama_detokenize(vocab, &token, 1, text.data(), int32_t(text.size()), false, true);
    if (n < 0) {
        text.resize(size_t(-n));
        n = llama_detokenize(vocab, &token, 1, text.data(), -n, false, true);
    }
    text.resize(size_t(std::max(n, 0)));
}

std::vector<token_id> tokens_of(const llama_vocab * vocab, const std::string & text) {
    std::vector<token_id> tokens(text.size() + 8);
    const auto            tokenize = [&] {
        return llama_tokenize(vocab, text.data(), int32_t(text.size()), tokens.data(), int32_t(tokens.size()), false,
                                         false);
    };
    int32_t n = tokenize();
    if (n < 0) {
        tokens.resize(size_t(-n));
        n = tokenize();
    }
    tokens.resize(std::min(size_t(std::max(n, 0)), n_tail_most));
    return tokens;
}

} // namespace

dry_breakers dry_breakers_of(const llama_vocab * vocab, const std::vector<std::string> & breakers) {
    dry_breakers out;
    // tails[b][i]: the tokens of breaker b without its first i bytes.
    std::vector<std::vector<std::vector<token_id>>> tails;
    for (const std::string & b : breakers) {
        auto & of = tails.emplace_back(b.size());
        for (size_t i = 1; i < b.size(); ++i) {
            of[i] = tokens_of(vocab, b.substr(i));
        }
    }
    std::string word;
    for (token_id t = 0; t < llama_vocab_n_tokens(vocab); ++t) {
        text_of(vocab, t, word);
        for (size_t b = 0; b < breakers.size(); ++b) {
            const std::string & whole = breakers[b];
            if (word.find(whole) != std::string::npos) {
                out[t].emplace_back();
                continue;
            }
            for (size_t i = 1; i < whole.size() && i <= word.size(); ++i) { // the word ends with i bytes of the breaker
                if (word.ends_with(std::string_view(whole).substr(0, i))) {
                    out[t].push_back(tails[b][i]);
                }
            }
        }
    }
    return out;
}

} // namespace duo
