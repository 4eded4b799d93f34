// How many tokens the text itself guesses right, at each place of given texts: duo's n-gram index, and a suffix
// automaton, which finds the longest match whatever its length. measure_sources.py builds and calls it.
//
// In: a line for each text: the number of prompt tokens, then all tokens. Out: for each text and source a line with the
// number of right guesses at each place behind the prompt, at most n_most.
#include <cstdio>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tree/ngram_index.h"

namespace {

using duo::token_id;

constexpr int32_t n_most = 16;

// Blumer et al., "The smallest automaton recognizing the subwords of a text" (1985), built token by token. Each state
// knows the end of its last occurrence before the one that is being entered.
class suffix_automaton {
  public:
    void add(token_id token) {
        const auto cur = int32_t(states_.size());
        states_.push_back({.length = states_[size_t(last_)].length + 1, .end = n_});
        int32_t p = last_;
        for (; p >= 0 && !states_[size_t(p)].next.contains(token); p = states_[size_t(p)].link) {
            states_[size_t(p)].next[token] = cur;
        }
        if (p < 0) {
            states_[size_t(cur)].link = 0;
        } else if (const int32_t q = states_[size_t(p)].next[token];
                   states_[size_t(q)].length == states_[size_t(p)].length + 1) {
            states_[size_t(cur)].link = q;
        } else {
            const auto copy = int32_t(states_.size());
            states_.push_back(states_[size_t(q)]);
            states_[size_t(copy)].length = states_[size_t(p)].length + 1;
            for (; p >= 0 && states_[size_t(p)].next[token] == q; p = states_[size_t(p)].link) {
                states_[size_t(p)].next[token] = copy;
            }
            states_[size_t(q)].link = states_[size_t(cur)].link = copy;
        }
        last_ = cur;
        ++n_;
        // The longest suffix that has occurred before: follow the text through the automaton without its last state.
        const int32_t seen = states_[size_t(cur)].link;
        n_match_           = states_[size_t(seen)].length;
        from_              = n_match_ > 0 ? states_[size_t(seen)].end + 1 : -1;
        for (int32_t s = seen; s > 0; s = states_[size_t(s)].link) {
            states_[size_t(s)].end = n_ - 1; // the last occurrence, for the next time
        }
    }

    // Where the continuation of the longest match begins; -1: there is none.
    int32_t from(int32_t n_least) const { return n_match_ >= n_least ? from_ : -1; }

  private:
    struct state {
        int32_t                     length = 0;
        int32_t                     end    = 0; // index of the last token of its last occurrence
        int32_t                     link   = -1;
        std::map<token_id, int32_t> next{};
    };

    std::vector<state> states_{1};
    int32_t            last_    = 0;
    int32_t            n_       = 0;
    int32_t            n_match_ = 0;
    int32_t            from_    = -1;
};

int32_t n_right(const std::vector<token_id> & guess, const std::vector<token_id> & text, size_t at) {
    int32_t n = 0;
    while (size_t(n) < guess.size() && n < n_most && at + size_t(n) < text.size() &&
           guess[size_t(n)] == text[at + size_t(n)]) {
        ++n;
    }
    return n;
}

void print(const char * name, const std::vector<int32_t> & counts) {
    std::printf("%s", name);
    for (const int32_t n : counts) {
        std::printf(" %d", n);
    }
    std::printf("\n");
}

void by_ngrams(const char * name, const duo::ngram_params & params, const std::vector<token_id> & text,
               size_t n_prompt) {
    duo::ngram_index index;
    index.begin(params, std::span(text).first(n_prompt));
    std::vector<duo::ngram_proposal> out(4);
    std::vector<int32_t>             counts;
    for (size_t i = n_prompt; i < text.size(); ++i) {
        const auto known = std::span(text).first(i);
        index.add(known);
        const size_t n    = index.propose(known, {}, n_most, out);
        int32_t      best = 0; // all continuations go into one tree
        for (size_t k = 0; k < n; ++k) {
            best = std::max(best, n_right(out[k].tokens, text, i));
        }
        counts.push_back(best);
    }
    print(name, counts);
}

void by_suffix(const char * name, int32_t n_least, const std::vector<token_id> & text, size_t n_prompt) {
    suffix_automaton     a;
    std::vector<int32_t> counts;
    for (size_t i = 0; i < text.size(); ++i) {
        if (i >= n_prompt) {
            int32_t n = 0;
            for (int32_t from = a.from(n_least); from >= 0 && n < n_most && i + size_t(n) < text.size() &&
                                                 text[size_t(from) + size_t(n)] == text[i + size_t(n)];) {
                ++n;
            }
            counts.push_back(n);
        }
        a.add(text[i]);
    }
    print(name, counts);
}

} // namespace

int main() {
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream    in(line);
        size_t                n_prompt = 0;
        std::vector<token_id> text;
        in >> n_prompt;
        for (token_id t = 0; in >> t;) {
            text.push_back(t);
        }
        by_ngrams("ngram-simple", {.kind = duo::ngram_kind::simple}, text, n_prompt);
        by_ngrams("ngram-map-k", {.kind = duo::ngram_kind::map_k}, text, n_prompt);
        by_ngrams("ngram-map-k4v", {.kind = duo::ngram_kind::map_k4v}, text, n_prompt);
        by_ngrams("ngram-simple-6", {.kind = duo::ngram_kind::simple, .size_n = 6}, text, n_prompt);
        by_ngrams("ngram-simple-48", {.kind = duo::ngram_kind::simple, .size_n = 48}, text, n_prompt);
        by_suffix("suffix-3", 3, text, n_prompt);
        by_suffix("suffix-2", 2, text, n_prompt);
    }
}
