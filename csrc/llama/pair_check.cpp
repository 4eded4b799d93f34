#include "pair_check.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace duo {

namespace {

constexpr int32_t n_size_slack  = 128;
constexpr int32_t n_first_equal = 5;

std::string quoted(const char * text) {
    std::string out = "'";
    for (const char * c = text; *c != '\0' && out.size() < 40; ++c) {
        constexpr const char * hex = "0123456789abcdef";
        const auto             b   = uint8_t(*c);
        out += b >= 0x20 && b != 0x7f ? std::string(1, *c) : std::string("\\x") + hex[b >> 4] + hex[b & 15];
    }
    return out + "'";
}

// A special token, and whether the tokenizer adds it to a text.
struct special {
    bool        added;
    llama_token id;
};

// The difference between the draft's and the target's token; empty: they are equal, or neither is used.
std::string difference(const std::string & name, const char * begins, const special & target, const special & draft) {
    if (target.added != draft.added) {
        return "it " + std::string(begins) + " a text with" + (draft.added ? "" : "out") + " its " + name +
               " token and the target with" + (target.added ? "" : "out");
    }
    if (target.added && target.id != draft.id) {
        return "its " + name + " token is " + std::to_string(draft.id) + " and the target's is " +
               std::to_string(target.id);
    }
    return {};
}

} // namespace

std::string vocabulary_difference(const llama_vocab * target, const llama_vocab * draft) {
    if (llama_vocab_type(target) != llama_vocab_type(draft)) {
        return "their tokenizers are of different types (" + std::to_string(llama_vocab_type(draft)) + " and " +
               std::to_string(llama_vocab_type(target)) + ")";
    }
    const int32_t n_target = llama_vocab_n_tokens(target);
    const int32_t n_draft  = llama_vocab_n_tokens(draft);
    for (int32_t i = n_first_equal; i < std::min(n_target, n_draft); ++i) {
        const char * t = llama_vocab_get_text(target, i);
        const char * d = llama_vocab_get_text(draft, i);
        if (std::strcmp(t, d) != 0) {
            return "token " + std::to_string(i) + " is " + quoted(d) + " in the draft and " + quoted(t) +
                   " in the target";
        }
    }
    if (std::abs(n_target - n_draft) > n_size_slack) {
        return "its vocabulary has " + std::to_string(n_draft) + " tokens and the target's " + std::to_string(n_target);
    }
    const auto  bos = [](const llama_vocab * v) { return special{llama_vocab_get_add_bos(v), llama_vocab_bos(v)}; };
    const auto  eos = [](const llama_vocab * v) { return special{llama_vocab_get_add_eos(v), llama_vocab_eos(v)}; };
    std::string why = difference("BOS", "begins", bos(target), bos(draft));
    why             = why.empty() ? difference("EOS", "ends", eos(target), eos(draft)) : why;
    return why;
}

std::string misfit(const std::string & difference) {
    return "the draft does not fit the target: " + difference + "; choose a draft of the same model family";
}

} // namespace duo
