#include "grammar.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/same.h"
#include "base/utf8.h"
#include "model/grammar_limits.h"

namespace duo {

namespace {

constexpr const char * root = "root";

llama_sampler * read(const llama_vocab * vocab, const std::string & gbnf) {
    return grammar_too_large(gbnf).empty() ? llama_sampler_init_grammar(vocab, gbnf.c_str(), root) : nullptr;
}

// Appends the token's text to `bytes`. Control tokens are spelled out, as grammars see them.
void add_piece(const llama_vocab * vocab, token_id token, std::string & bytes) {
    const size_t n_before = bytes.size();
    bytes.resize(n_before + 64);
    int32_t n = llama_token_to_piece(vocab, token, bytes.data() + n_before, 64, 0, true);
    if (n < 0) {
        bytes.resize(n_before + size_t(-n));
        n = llama_token_to_piece(vocab, token, bytes.data() + n_before, -n, 0, true);
    }
    bytes.resize(n_before + size_t(std::max(n, 0)));
}

} // namespace

grammar::grammar(const llama_vocab * vocab, const std::string & gbnf, size_t n_states)
    : vocab_(vocab), n_states_(n_states), start_(read(vocab, gbnf)) {
    if (!start_) {
        throw error(error_kind::bad_value, "llama.cpp cannot read the grammar; see its log (-v)");
    }
    for (token_id t = 0; t < llama_vocab_n_tokens(vocab) && end_ == no_token; ++t) {
        end_ = llama_vocab_is_eog(vocab, t) ? t : no_token;
    }
    states_.reserve(n_states);
}

bool grammar::reads(const llama_vocab * vocab, const std::string & gbnf) {
    return sampler_ptr(read(vocab, gbnf)) != nullptr;
}

// Finds the state after the longest prefix of the text. It is advanced in place if it is the next to be evicted,
// otherwise cloned.
grammar::state & grammar::nearest(std::span<const token_id> generated) {
    state * best = nullptr;
    for (state & s : states_) {
        if (size_t(n_same(s.text, generated)) == s.text.size() &&
            (best == nullptr || s.text.size() > best->text.size())) {
            best = &s;
        }
    }
    if (best != nullptr && best->text.size() == generated.size()) {
        return *best;
    }
    const auto older  = [](const state & a, const state & b) { return a.t_used < b.t_used; };
    const bool full   = states_.size() == n_states_;
    state *    chosen = full ? &*std::min_element(states_.begin(), states_.end(), older) : nullptr;
    if (chosen != nullptr && chosen == best) {
        return *best;
    }
    state fresh;
    fresh.at.reset(llama_sampler_clone(best != nullptr ? best->at.get() : start_.get()));
    if (best != nullptr) {
        fresh.text = best->text;
        fresh.tail = best->tail;
        fresh.over = best->over;
    }
    if (chosen == nullptr) {
        return states_.emplace_back(std::move(fresh)); // capacity was reserved, so `best` stays valid
    }
    *chosen = std::move(fresh);
    return *chosen;
}

void grammar::stand_behind(std::span<const token_id> generated) {
    state & s = nearest(generated);
    i_found_  = size_t(&s - states_.data());
    s.t_used  = ++clock_;
    for (size_t i = s.text.size(); i < generated.size(); ++i) {
        accept(s, generated[i]);
    }
}

// libllama throws for a token that the grammar does not allow, and aborts for an end token at a wrong place.
void grammar::accept(state & s, token_id token) {
    s.text.push_back(token);
    if (s.over || llama_vocab_is_eog(vocab_, token) || !may_be_text(s, token)) {
        s.over = true;
        return;
    }
    try {
        llama_sampler_accept(s.at.get(), token);
        s.tail = bytes_.substr(bytes_.size() - utf8_incomplete(bytes_));
    } catch (const std::exception &) {
        s.over = true;
    }
}

// Whether the token is ordinary text and keeps the answer valid UTF-8. (Grammars accept an overlong form as the
// character that it encodes.) If so, bytes_ is the tail plus the token's text.
bool grammar::may_be_text(const state & s, token_id token) {
    if ((llama_vocab_get_attr(vocab_, token) & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN)) != 0) {
        return false;
    }
    bytes_ = s.tail;
    add_piece(vocab_, token, bytes_);
    if (bytes_.find('\0') != std::string::npos) {
        return false;
    }
    const auto plain = [](char c) { return uint8_t(c) < 0x80; };
    if (std::all_of(bytes_.begin(), bytes_.end(), plain)) {
        return true;
    }
    const std::string whole = bytes_.substr(0, bytes_.size() - utf8_incomplete(bytes_));
    return utf8_valid(whole) == whole;
}

void grammar::keep_allowed(std::vector<llama_token_data> & tokens) {
    const state & s = states_[i_found_];
    asked_.clear();
    if (!s.over) {
        std::copy_if(tokens.begin(), tokens.end(), std::back_inserter(asked_),
                     [this, &s](const auto & d) { return llama_vocab_is_eog(vocab_, d.id) || may_be_text(s, d.id); });
    }
    tokens = asked_;
    if (tokens.empty()) {
        return;
    }
    llama_token_data_array asked{asked_.data(), asked_.size(), -1, false};
    llama_sampler_apply(s.at.get(), &asked);
    size_t n = 0; // the grammar refuses by a logit of -inf, and keeps the order
    for (size_t i = 0; i < tokens.size(); ++i) {
        if (asked_[i].logit != -std::numeric_limits<float>::infinity()) {
            tokens[n++] = tokens[i];
        }
    }
    tokens.resize(n);
}

bool grammar::complete() {
    if (end_ == no_token) {
        return true;
    }
    std::vector<llama_token_data> end{{end_, 0.0f, 0.0f}};
    keep_allowed(end);
    return !end.empty();
}

} // namespace duo
