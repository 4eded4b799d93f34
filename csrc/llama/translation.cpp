#include "translation.h"

#include <algorithm>

namespace duo {

namespace {

bool has_tokenizer(const vocabulary & v) {
    return llama_vocab_type(v.get()) != LLAMA_VOCAB_TYPE_NONE;
}

bool is_control(const llama_vocab * v, token_id t) {
    return llama_vocab_is_control(v, t) || llama_vocab_is_eog(v, t);
}

// The other vocabulary's token that means the same; no_token: there is none by name or by what it does.
token_id control_token(const llama_vocab * from, token_id t, const llama_vocab * to, const spelling & names) {
    if (const token_id same = names.named(llama_vocab_get_text(from, t)); same != no_token) {
        return same;
    }
    if (llama_vocab_is_eog(from, t)) {
        const token_id turn = llama_vocab_eot(to);
        return turn >= 0 ? turn : llama_vocab_eos(to);
    }
    return t == llama_vocab_bos(from) ? llama_vocab_bos(to) : no_token;
}

} // namespace

// A byte's token spells what no other token does: SentencePiece has '\n' and '<0x0A>'.
spelling::spelling(const vocabulary & v) {
    for (const bool bytes : {false, true}) {
        for (token_id t = 0; t < v.n_tokens(); ++t) {
            if (bytes != ((llama_vocab_get_attr(v.get(), t) & LLAMA_TOKEN_ATTR_BYTE) != 0)) {
                continue;
            }
            if (is_control(v.get(), t)) {
                by_name_.emplace(v.text(t), t);
            } else if (const std::string text = v.piece(t, false); !text.empty()) {
                n_longest_ = std::max(n_longest_, text.size());
                by_text_.emplace(text, t);
            }
        }
    }
}

token_id spelling::find(std::string_view text) const {
    const auto found = by_text_.find(std::string(text));
    return found == by_text_.end() ? no_token : found->second;
}

token_id spelling::named(std::string_view name) const {
    const auto found = by_name_.find(std::string(name));
    return found == by_name_.end() ? no_token : found->second;
}

std::vector<token_id> spelling::spell(std::string_view text) const {
    std::vector<token_id> out;
    while (!text.empty()) {
        size_t   n = std::min(n_longest_, text.size());
        token_id t = no_token;
        while (n > 0 && (t = find(text.substr(0, n))) == no_token) {
            --n;
        }
        if (n > 0) {
            out.push_back(t);
        }
        text.remove_prefix(std::max<size_t>(n, 1));
    }
    return out;
}

translation::translation(const vocabulary & target, const vocabulary & draft) {
    first_.push_back(0);
    if (!has_tokenizer(target) || !has_tokenizer(draft)) {
        return; // nothing is shared
    }
    bos_ = llama_vocab_get_add_bos(draft.get()) ? draft.bos() : no_token;
    const spelling of_target(target);
    const spelling of_draft(draft);
    const auto     spelled = [&](token_id t) -> std::vector<token_id> {
        if (!is_control(target.get(), t)) {
            return of_draft.spell(target.piece(t, false));
        }
        const token_id same = control_token(target.get(), t, draft.get(), of_draft);
        return same != no_token ? std::vector{same} : of_draft.spell(target.piece(t, true));
    };
    for (token_id t = 0; t < target.n_tokens(); ++t) {
        const auto tokens = spelled(t);
        if (tokens.empty()) {
            read_.push_back(0); // each token has a row
        }
        read_.insert(read_.end(), tokens.end() - std::ptrdiff_t(std::min(tokens.size(), n_most)), tokens.end());
        first_.push_back(int32_t(read_.size()));
    }
    int32_t n_ordinary = 0;
    int32_t n_shared   = 0;
    for (token_id t = 0; t < draft.n_tokens(); ++t) {
        if (is_control(draft.get(), t)) {
            write_.push_back(control_token(draft.get(), t, target.get(), of_target));
            continue;
        }
        const std::string text = draft.piece(t, false);
        const token_id    same = of_target.find(text);
        const auto        some = same == no_token ? of_target.spell(text) : std::vector<token_id>();
        write_.push_back(!some.empty() ? some.front() : same);
        n_ordinary += text.empty() ? 0 : 1;
        n_shared += same == no_token ? 0 : 1;
    }
    shared_ = double(n_shared) / std::max(1, std::min(n_ordinary, of_target.n_texts()));
}

} // namespace duo
