#include "token_chooser.h"

#include <algorithm>

#include "base/error.h"

namespace duo {

namespace {

// How the target chooses from what a hook has left.
const sampling_params & sampling_of(const request & req) {
    return req.filtered ? *req.filtered : req.sampling;
}

} // namespace

std::optional<token_id> token_chooser::choose(verify_text & text, int32_t i_row) {
    const request & req    = text.req();
    const auto      logits = req.hook ? model_.row_logits(i_row, nullptr, text.tokens()) : std::span<float>{};
    struct restorer { // log-probabilities are the model's own
        ~restorer() { std::copy(own.begin(), own.end(), row.begin()); }
        const std::vector<float> & own;
        std::span<float>           row;
    };
    own_logits_.assign(logits.begin(), logits.end());
    const restorer restored{own_logits_, logits};
    if (req.hook && !req.hook->on_row(text.tokens(), logits)) {
        return std::nullopt;
    }
    if (!chosen_.empty()) {
        const token_id next = chosen_.front();
        chosen_.pop_front();
        return next;
    }
    if (!req.hook || req.sampling.grammar.empty()) {
        return chosen(text, i_row);
    }
    try {
        if (const auto next = chosen(text, i_row)) {
            return next;
        }
    } catch (const nan_error &) {
        throw; // the row is evaluated again
    } catch (const error & e) {
        if (e.kind() != error_kind::bad_value) {
            throw;
        }
    }
    // The hook has left nothing that the grammar allows. As in llama.cpp (common_sampler_sample), the grammar is then
    // the first to choose.
    std::copy(own_logits_.begin(), own_logits_.end(), logits.begin());
    if (req.hook->refused()) {
        model_.row_logits(i_row, &sampling_of(req), text.tokens());
    }
    req.hook->reconsider(text.tokens(), logits);
    return chosen(text, i_row);
}

std::optional<token_id> token_chooser::chosen(verify_text & text, int32_t i_row) {
    const request &         req      = text.req();
    const sampling_params & sampling = sampling_of(req);
    const bool              noise    = sampling.rule() == accept_rule::noise;
    if (const auto guesses = noise ? guesses_below{} : text.guesses().below(text.row(), req.sampling);
        !guesses.tokens.empty()) {
        model_.chances(i_row, sampling, text.tokens(), chances_);
        if (!chances_.empty()) {
            return acceptance_.choose(sampling, text.tokens().size(), chances_, guesses);
        }
    } else if (candidate chosen; model_.candidates(i_row, sampling, text.tokens(), std::span(&chosen, 1)) == 1) {
        return chosen.token;
    }
    if (sampling.grammar.empty()) {
        throw error(error_kind::bad_value, req.hook
                                               ? "the logits_processor or a sampler left no token that can be chosen"
                                               : "the filters left no candidate token; allow more tokens");
    }
    return std::nullopt;
}

// With rejection, a chain in which each guess was drawn alone is decided as a whole before the walk. A hook may change
// rows, and a grammar follows the text one way only, so with these each token is decided by itself.
void token_chooser::begin_walk(verify_text & text, int32_t i_root) {
    chosen_.clear();
    const request & req = text.req();
    if (!acceptance::draws(req.sampling) || req.hook || !req.sampling.grammar.empty()) {
        return;
    }
    path_         = text.tokens();
    size_t  n     = 0;
    int32_t i_row = -1;
    do {
        const guesses_below below = text.guesses().below(i_row, req.sampling);
        if (below.tokens.size() != 1) {
            break;
        }
        if (n == levels_.size()) {
            levels_.emplace_back();
        }
        block_level & level = levels_[n++];
        level.guess         = below.tokens.front();
        level.shares.assign(below.shares.begin(), below.shares.end());
        model_.chances(i_root + 1 + i_row, req.sampling, path_, level.chances);
        if (level.chances.empty()) {
            --n; // the walk will say why, if it comes here
            break;
        }
        path_.push_back(level.guess);
        i_row = text.guesses().tree().child_row(i_row, level.guess);
    } while (i_row >= 0);
    if (n < 2) {
        return;
    }
    const auto          levels = std::span(levels_).first(n);
    const block_verdict v      = acceptance_.choose(req.sampling, text.tokens().size(), levels);
    for (const block_level & level : levels.first(v.n_accepted)) {
        chosen_.push_back(level.guess);
    }
    if (v.next != no_token) {
        chosen_.push_back(v.next);
    }
}

} // namespace duo
