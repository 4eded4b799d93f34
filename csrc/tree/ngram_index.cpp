#include "ngram_index.h"

#include <algorithm>
#include <bit>

namespace duo {

// The text followed by the tail, as one sequence.
struct ngram_index::sequence {
    std::span<const token_id> text;
    std::span<const token_id> tail;

    [[nodiscard]] int32_t  size() const { return int32_t(text.size() + tail.size()); }
    [[nodiscard]] token_id at(int32_t i) const {
        return size_t(i) < text.size() ? text[size_t(i)] : tail[size_t(i) - text.size()];
    }

    // How many tokens before a and before b are the same, at most n.
    [[nodiscard]] int32_t common(int32_t a, int32_t b, int32_t n) const {
        int32_t k = 0;
        for (n = std::min({n, a, b}); k < n && at(a - 1 - k) == at(b - 1 - k);) {
            ++k;
        }
        return k;
    }
};

void ngram_index::begin(const ngram_params & params, std::span<const token_id> text, ngram_keys keys) {
    params_          = params;
    params_.size_n   = std::clamp(params.size_n, 1, 1024);
    params_.size_m   = std::min(params.size_m, 1024);
    params_.min_hits = params.kind == ngram_kind::simple ? 1 : std::max(params.min_hits, 1);

    const int32_t n_last = std::min(params_.size_n, keys.shortest);
    const int32_t range  = params_.size_n - n_last;
    const int32_t step   = range / keys.n_lengths + 1; // smallest with range / step < n_lengths
    n_lengths_           = size_t(range / step) + 1;
    for (size_t i = 0; i < n_lengths_; ++i) {
        lengths_[i] = params_.size_n - int32_t(n_lengths_ - 1 - i) * step;
    }

    n_used_ = 0;
    n_done_ = 0;
    values_.clear();
    if (params_.kind != ngram_kind::none) {
        slots_.assign(std::bit_ceil(4 * (text.size() + max_lengths)), {});
        shift_ = 64 - std::countr_zero(slots_.size());
        add(text);
    }
}

void ngram_index::add(std::span<const token_id> text) {
    if (params_.kind == ngram_kind::none) {
        return;
    }
    const sequence seq{text, {}};
    for (; n_done_ < seq.size(); ++n_done_) {
        if (seq.at(n_done_) >= 0) {
            enter(seq, n_done_);
        }
    }
}

// Of the n_to tokens before `end`, last one first, so that a longer key goes on where the shorter one stopped.
uint64_t ngram_index::hash(uint64_t h, const sequence & seq, int32_t end, int32_t n_from, int32_t n_to) {
    for (int32_t k = n_from; k < n_to; ++k) {
        h = (h + uint32_t(seq.at(end - 1 - k)) + 1) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 32;
    }
    return h;
}

// The slot of the key before `end`, or the free one where it belongs. Tags only save comparisons; the tokens decide.
size_t ngram_index::find(const sequence & seq, size_t i_length, int32_t end, uint64_t h) const {
    const int32_t  n    = lengths_[i_length];
    const uint32_t tag  = (uint32_t(h) & ~15u) | uint32_t(i_length);
    const size_t   mask = slots_.size() - 1;
    size_t         i    = size_t((tag * 0x9e3779b97f4a7c15ull) >> shift_);
    while (slots_[i].n_seen > 0 && (slots_[i].tag != tag || seq.common(slots_[i].end, end, n) < n)) {
        i = (i + 1) & mask;
    }
    return i;
}

void ngram_index::grow() {
    std::vector<slot> old(2 * slots_.size());
    old.swap(slots_);
    --shift_;
    for (const slot & s : old) {
        if (s.n_seen > 0) {
            size_t i = size_t((s.tag * 0x9e3779b97f4a7c15ull) >> shift_);
            while (slots_[i].n_seen > 0) {
                i = (i + 1) & (slots_.size() - 1);
            }
            slots_[i] = s;
        }
    }
}

// If a key was seen once, each longer key with the same end was seen once as well. Longer keys enter the table only
// when the shorter key is seen again. So text that does not repeat costs one entry per token, not one per length.
void ngram_index::enter(const sequence & seq, int32_t end) {
    if (2 * (n_used_ + 2 * n_lengths_) > slots_.size()) {
        grow();
    }
    uint64_t h     = 0;
    int32_t  n     = 0;
    int32_t  first = -1; // the one earlier occurrence of the shorter key, not yet entered with this length
    for (size_t i = 0; i < n_lengths_ && lengths_[i] <= end; ++i) {
        if (first >= lengths_[i]) {
            int32_t none = -1;
            enter_key(seq, i, first, hash(h, seq, first, n, lengths_[i]), none);
        }
        h = hash(h, seq, end, n, lengths_[i]);
        n = lengths_[i];
        if (enter_key(seq, i, end, h, first) == 1) {
            break;
        }
    }
}

// Returns how often the key was seen, this time included. `first`: its only earlier occurrence, else -1.
int32_t ngram_index::enter_key(const sequence & seq, size_t i_length, int32_t end, uint64_t h, int32_t & first) {
    slot & s = slots_[find(seq, i_length, end, h)];
    first    = s.n_seen == 1 ? s.end : -1;
    if (s.n_seen == 0) {
        s = {.tag = (uint32_t(h) & ~15u) | uint32_t(i_length)};
        ++n_used_;
    } else if (params_.kind == ngram_kind::map_k4v) {
        if (s.i_values < 0) {
            s.i_values = int32_t(values_.size());
            values_.push_back({value{s.end, 1}});
        }
        count(values_[size_t(s.i_values)], seq, {end, 1});
    }
    s.end = end;
    return ++s.n_seen;
}

// One more occurrence, later than all before.
void ngram_index::count(values & all, const sequence & seq, value seen) {
    value * worst = all.data();
    for (value & v : all) {
        if (v.n_seen > 0 && seq.at(v.end) == seq.at(seen.end)) {
            v = {seen.end, v.n_seen + seen.n_seen};
            return;
        }
        if (v.n_seen < worst->n_seen || (v.n_seen == worst->n_seen && v.end < worst->end)) {
            worst = &v;
        }
    }
    *worst = seen;
}

// Occurrences of the sequence's last tokens, for each key length: from the table, then those that are not in it.
void ngram_index::look_up(const sequence & seq, matches & out) const {
    const int32_t end = seq.size();
    uint64_t      h   = 0;
    int32_t       n   = 0;
    for (size_t i = 0; i < n_lengths_ && lengths_[i] <= end; ++i) {
        h               = hash(h, seq, end, n, lengths_[i]);
        n               = lengths_[i];
        const size_t is = find(seq, i, end, h);
        const slot & s  = slots_[is];
        if (s.n_seen > 0) {
            out[i] = {s.n_seen, s.end, int32_t(is)};
        }
        if (s.n_seen == 1) {
            const int32_t n_same = seq.common(s.end, end, params_.size_n);
            for (++i; i < n_lengths_ && lengths_[i] <= n_same; ++i) {
                out[i] = {1, s.end, int32_t(is)}; // see enter(): no slot of its own
            }
        }
        if (s.n_seen < 2) {
            break;
        }
    }
    for (int32_t e = n_done_; e < end; ++e) {
        const int32_t n_same = seq.common(e, end, params_.size_n);
        for (size_t i = 0; i < n_lengths_ && lengths_[i] <= n_same; ++i) {
            ++out[i].n_seen;
            out[i].end = e;
        }
    }
}

// The continuations of a key that has been looked up, best first.
ngram_index::values ngram_index::values_of(const sequence & seq, const match & m, int32_t length) const {
    values all{};
    if (m.i_slot >= 0) {
        const slot & s = slots_[size_t(m.i_slot)];
        all            = s.i_values >= 0 ? values_[size_t(s.i_values)] : values{value{s.end, 1}};
    }
    for (int32_t e = n_done_; e < seq.size(); ++e) {
        if (seq.common(e, seq.size(), length) == length) {
            count(all, seq, {e, 1});
        }
    }
    std::sort(all.begin(), all.end(), [](const value & a, const value & b) {
        return a.n_seen != b.n_seen ? a.n_seen > b.n_seen : a.end > b.end;
    });
    return all;
}

void ngram_index::propose_at(const sequence & seq, value from, int32_t n_match, int32_t n, ngram_proposal & out) {
    out.n_match = n_match;
    out.n_hits  = from.n_seen;
    out.tokens.resize(size_t(n));
    for (int32_t k = 0; k < n; ++k) {
        const int32_t i       = from.end + k;
        out.tokens[size_t(k)] = i < seq.size() ? seq.at(i) : out.tokens[size_t(i - seq.size())];
        if (const token_id t = out.tokens[size_t(k)]; t < 0 || is_picture(t)) {
            out.tokens.resize(size_t(k)); // nobody writes it
            return;
        }
    }
}

size_t ngram_index::propose(std::span<const token_id> text, std::span<const token_id> tail, int32_t n_max,
                            std::span<ngram_proposal> out) const {
    const int32_t n = std::min(n_max, params_.size_m);
    if (params_.kind == ngram_kind::none || n < 1 || out.empty() || text.size() < size_t(n_done_)) {
        return 0;
    }
    const sequence seq{text, tail};
    matches        found;
    look_up(seq, found);
    size_t i = n_lengths_;
    while (i > 0 && found[i - 1].n_seen < params_.min_hits) {
        --i;
    }
    if (i == 0) {
        return 0;
    }
    const match & m      = found[i - 1];
    const int32_t length = lengths_[i - 1];
    if (params_.kind != ngram_kind::map_k4v) {
        propose_at(seq, {m.end, params_.kind == ngram_kind::simple ? 1 : m.n_seen}, length, n, out[0]);
        return 1;
    }
    size_t n_out = 0;
    for (const value & v : values_of(seq, m, length)) {
        if (v.n_seen > 0 && n_out < out.size()) {
            propose_at(seq, v, length, n, out[n_out++]);
        }
    }
    return n_out;
}

} // namespace duo
