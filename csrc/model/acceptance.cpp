#include "acceptance.h"

#include <algorithm>
#include <cmath>

namespace duo {

namespace {

// The draft's draws, the target's coins and its own draws must be independent of each other, or the text would not have
// the target's distribution. So each has a key of its own; the target's own draws have the text's.
constexpr uint64_t key_of_draws = 0x5851f42d4c957f2dull;
constexpr uint64_t key_of_coins = 0x14057b7ef767814full;
// A block's coins belong to its beginning: those of a token that was not reached are not tossed again later.
constexpr uint64_t key_of_block = 0x9fb21c651e98df25ull;

constexpr size_t n_path = 128; // last tokens of a text that its draws depend on; a tree is not as deep as this

// How sure a draft is of a draw says how often the target takes it: as about this power of its probability, divided by
// the temperature like the logits. By likelihood the best powers on the demo pair are 0.95, 0.2 and 0.2 at temperatures
// 0.2, 0.8 and 1 (benchmarks/measure_acceptance.py).
constexpr double power_of_draws = 0.19;

// Two nodes of a tree must not have the same draws: one's draws decide whether the other is worth expanding.
uint64_t hash_of_end(const sampling_params & s, std::span<const token_id> text) {
    uint64_t h = s.position_after(text.size());
    for (const token_id t : text.last(std::min(text.size(), n_path))) {
        h = (h ^ uint64_t(t)) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 29;
    }
    return h;
}

const candidate * find(std::span<const candidate> all, token_id token) {
    const auto c = std::find_if(all.begin(), all.end(), [token](const candidate & x) { return x.token == token; });
    return c == all.end() ? nullptr : &*c;
}

double probability(const candidate & c) {
    return std::exp(double(c.logp));
}

} // namespace

// The largest sums of log-probability and Gumbel noise, in order, are draws without replacement (Kool et al., arXiv
// 1903.06059).
void acceptance::draw(const sampling_params & s, std::span<const token_id> text, std::vector<candidate> & chances,
                      size_t n, std::vector<candidate> & out) {
    chances.resize(std::min(chances.size(), n_shares_most));
    double sum = 0.0;
    for (const candidate & c : chances) {
        sum += probability(c);
    }
    const uint64_t place = hash_of_end(s, text);
    order_.clear();
    for (candidate & c : chances) {
        c.logp -= float(std::log(sum));
        order_.push_back({c.token, c.logp + gumbel_noise(s.seed ^ key_of_draws, place, c.token)});
    }
    std::stable_sort(order_.begin(), order_.end(), [](const auto & a, const auto & b) { return a.logp > b.logp; });
    order_.resize(std::min(n, order_.size()));
    out.clear();
    const double power     = std::min(1.0, power_of_draws / std::max(0.1, double(s.temp)));
    double       not_drawn = 1.0; // share of the tokens that are not drawn yet
    double       refused   = 1.0; // chance that the target refused all draws before
    for (const candidate & c : order_) {
        const double share  = probability(*find(chances, c.token));
        const double chance = refused * std::pow(std::clamp(share / not_drawn, 0.0, 1.0), power);
        out.push_back({c.token, float(std::log(std::max(chance, 1e-30)))});
        refused -= std::min(chance, 0.999 * refused);
        not_drawn = std::max(not_drawn - share, share * 1e-6);
    }
}

token_id acceptance::choose(const sampling_params & s, size_t pos, std::span<const candidate> chances,
                            const guesses_below & guesses) {
    const auto accepted = [&](const auto & right) {
        const auto g = std::find_if(guesses.tokens.begin(), guesses.tokens.end(), right);
        return g == guesses.tokens.end() ? own(s, pos, chances) : *g;
    };
    switch (s.rule()) {
        case accept_rule::rejection:
            return rejection(s, pos, chances, guesses);
        case accept_rule::typical: {
            const double limit = typical_limit(s, chances);
            return accepted([&](token_id t) {
                const candidate * c = find(chances, t);
                return c != nullptr && probability(*c) > limit;
            });
        }
        case accept_rule::top_n: {
            const auto best = chances.first(std::min(chances.size(), size_t(s.accept_top)));
            return accepted([&](token_id t) { return find(best, t) != nullptr; });
        }
        case accept_rule::noise:
            break;
    }
    return own(s, pos, chances);
}

// As without a draft: the same token as token_model::candidates() has first.
token_id acceptance::own(const sampling_params & s, size_t pos, std::span<const candidate> chances) {
    token_id best  = no_token;
    float    score = 0.0f;
    for (const candidate & c : chances) {
        const float x = c.logp + gumbel_noise(s.seed, pos, c.token);
        if (best == no_token || x > score) {
            best  = c.token;
            score = x;
        }
    }
    return best;
}

double acceptance::typical_limit(const sampling_params & s, std::span<const candidate> chances) {
    double entropy = 0.0;
    for (const candidate & c : chances) {
        entropy -= probability(c) * double(c.logp);
    }
    return std::min(double(s.posterior_threshold), double(s.posterior_alpha) * std::exp(-entropy));
}

// Several rounds, as SpecInfer's (Miao et al., arXiv 2305.09781): each guess is accepted with probability min(1, p/q),
// or else p becomes what p has above q. The guesses are drawn without replacement, so q loses what was drawn (Jeon et
// al., arXiv 2402.14160). A guess may be tried whether or not it has a row in the pass: only p of *this* row counts. So
// the choice of rows, which depends on the guesses, cannot bias the text.
token_id acceptance::rejection(const sampling_params & s, size_t pos, std::span<const candidate> chances,
                               const guesses_below & guesses) {
    left_.assign(chances.begin(), chances.end());
    mass_.clear();
    double sum = 0.0;
    for (const candidate & c : chances) {
        sum += mass_.emplace_back(probability(c));
    }
    double not_drawn = 1.0;
    for (size_t k = 0; k < guesses.tokens.size(); ++k) {
        const candidate * share = find(guesses.shares, guesses.tokens[k]);
        if (share == nullptr) {
            break;
        }
        const double q = std::min(1.0, probability(*share) / not_drawn);
        const auto   at =
            std::find_if(left_.begin(), left_.end(), [&](const candidate & c) { return c.token == share->token; });
        const double p = at == left_.end() ? 0.0 : mass_[size_t(at - left_.begin())] / sum;
        if (noise_uniform(s.seed ^ key_of_coins, pos, k) * q < p) {
            return share->token;
        }
        double rest = 0.0;
        for (size_t i = 0; i < left_.size(); ++i) {
            const candidate * other = find(guesses.shares, left_[i].token);
            const auto        drawn = guesses.tokens.first(k);
            if (other != nullptr && std::find(drawn.begin(), drawn.end(), other->token) == drawn.end()) {
                mass_[i] = std::max(0.0, mass_[i] - sum * std::min(1.0, probability(*other) / not_drawn));
            }
            rest += mass_[i];
        }
        if (rest <= 0.0) {
            return share->token; // p equals q, so only rounding can have rejected it
        }
        sum = rest;
        not_drawn -= probability(*share);
        if (not_drawn <= 1e-6) {
            break; // nothing else can have been drawn
        }
    }
    return own_of_rest(s, pos);
}

// Draws from left_ by mass_.
token_id acceptance::own_of_rest(const sampling_params & s, size_t pos) {
    for (size_t i = 0; i < left_.size(); ++i) {
        left_[i].logp = float(std::log(std::max(mass_[i], 1e-300)));
    }
    return own(s, pos, left_);
}

// What `scale` times the target's distribution has above the draft's. Returns its sum.
double acceptance::set_rest(const block_level & level, double scale) {
    left_ = level.chances;
    mass_.clear();
    double sum = 0.0;
    for (const candidate & c : left_) {
        const candidate * share = find(level.shares, c.token);
        sum +=
            mass_.emplace_back(std::max(0.0, scale * probability(c) - (share == nullptr ? 0.0 : probability(*share))));
    }
    return sum;
}

// Algorithm 2 of the paper. kept: the chance of the guesses so far by the target, relative to the draft's, at most 1.
// It is also the chance that these are accepted, and that holds at each guess by itself. So a chain may end where the
// guesses before suggest it.
block_verdict acceptance::choose(const sampling_params & s, size_t pos, std::span<const block_level> levels) {
    block_verdict out;
    double        kept        = 1.0;
    double        kept_of_out = 1.0;
    for (size_t i = 0; i < levels.size(); ++i) {
        const candidate * p = find(levels[i].chances, levels[i].guess);
        const candidate * q = find(levels[i].shares, levels[i].guess);
        kept = p == nullptr || q == nullptr ? 0.0 : std::min(1.0, kept * std::exp(double(p->logp) - double(q->logp)));
        double accept = kept;
        if (i + 1 < levels.size() && kept < 1.0) {
            const double rest = set_rest(levels[i + 1], kept);
            accept            = rest / (rest + 1.0 - kept);
        }
        if (noise_uniform(s.seed ^ key_of_block, pos, i) < accept) {
            out.n_accepted = i + 1;
            kept_of_out    = kept;
        }
    }
    if (out.n_accepted < levels.size()) {
        if (set_rest(levels[out.n_accepted], kept_of_out) <= 0.0) { // p equals q, so only rounding can have rejected it
            left_ = levels[out.n_accepted].chances;
            std::transform(left_.begin(), left_.end(), mass_.begin(), probability);
        }
        out.next = own_of_rest(s, pos + out.n_accepted);
    }
    return out;
}

} // namespace duo
