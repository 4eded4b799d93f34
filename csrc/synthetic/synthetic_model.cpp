#include "synthetic_model.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string_view>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

namespace duo {

namespace {

constexpr int32_t n_branches_most = 64;
constexpr size_t  n_prompt_rows   = 64;   // more rows than this, not all with output: a prompt
constexpr int64_t spin_us         = 150;  // a sleep ends late by up to this
constexpr int64_t slice_us        = 2000; // `stop` is looked at this often
constexpr float   unlikely        = -30.0f;

// A hash of its own, so that whether a guess is right does not depend on the token.
constexpr uint64_t for_rank   = 0x5bf03635d78e0c1dull;
constexpr uint64_t for_others = 0x27220a95fe8b1c6bull;

// Throws if the contract is broken. The message is made only then, because rows are checked while the clock runs.
template <typename Sentence> void check(bool ok, const Sentence & sentence) {
    if (!ok) {
        throw error("the synthetic model: " + sentence());
    }
}

// False: `stop` became true. Sleeps first and spins at the end, so that short passes take the exact time too.
bool wait_until(int64_t t_us, const std::atomic<bool> & stop) {
    for (;;) {
        if (stop.load(std::memory_order_relaxed)) {
            return false;
        }
        const int64_t left = t_us - now_us();
        if (left <= 0) {
            return true;
        }
        if (left > spin_us) {
            std::this_thread::sleep_for(std::chrono::microseconds(std::min(left - spin_us, slice_us)));
        }
    }
}

} // namespace

synthetic_model::synthetic_model(const synthetic_options & opt, bool is_draft)
    : facts_{.n_ctx    = opt.n_ctx,
             .n_batch  = 2048,
             .n_branch = n_branches_most,
             .n_cells  = opt.n_ctx + 256,
             .n_vocab  = opt.n_vocab},
      seed_(opt.seed), agree_(opt.agree), cost_(is_draft ? opt.draft_cost() : opt.target_cost()), is_draft_(is_draft),
      tips_(n_branches_most, -1) {
    opt.check();
}

void synthetic_model::check_branch(int32_t branch) const {
    check(branch >= 0 && branch < facts_.n_branch, [&] { return "there is no branch " + std::to_string(branch); });
}

int32_t synthetic_model::length(int32_t branch) const {
    const int32_t i = tips_[size_t(branch)];
    return i < 0 ? 0 : cells_[size_t(i)].pos + 1;
}

void synthetic_model::let_go(int32_t i_cell) {
    while (i_cell >= 0 && --cells_[size_t(i_cell)].n_refs == 0) {
        free_.push_back(i_cell);
        --n_used_;
        i_cell = cells_[size_t(i_cell)].parent;
    }
}

// Two chains of equal length.
bool synthetic_model::same_text(int32_t i, int32_t j) const {
    while (i != j) {
        if (i < 0 || j < 0 || cells_[size_t(i)].token != cells_[size_t(j)].token) {
            return false;
        }
        i = cells_[size_t(i)].parent;
        j = cells_[size_t(j)].parent;
    }
    return true;
}

// One row: one cell, the new end of all its branches.
void synthetic_model::append(const row & r) {
    check(r.n_branches >= 1 && r.n_branches <= facts_.n_branch,
          [&] { return std::to_string(r.n_branches) + " branches in a row"; });
    check_branch(r.branch);
    check_branch(r.branch + r.n_branches - 1);
    check(r.token >= 0 && r.token < facts_.n_vocab, [&] { return std::to_string(r.token) + " is not a token id"; });
    check(r.pos < facts_.n_ctx, [&] { return std::to_string(r.pos) + " is a position outside the context"; });
    check(n_used_ < facts_.n_cells, [&] { return "all " + std::to_string(facts_.n_cells) + " cells are in use"; });
    const int32_t up = tips_[size_t(r.branch)];
    for (int32_t b = r.branch; b < r.branch + r.n_branches; ++b) {
        check(length(b) == r.pos, [&] {
            return "a row at position " + std::to_string(r.pos) + " follows " + std::to_string(length(b)) +
                   " tokens in branch " + std::to_string(b);
        });
        check(same_text(tips_[size_t(b)], up), [&] {
            return "branches " + std::to_string(r.branch) + " and " + std::to_string(b) + " share a row, not a text";
        });
    }

    if (free_.empty()) {
        free_.push_back(int32_t(cells_.size()));
        cells_.emplace_back();
    }
    const int32_t i = free_.back();
    free_.pop_back();
    ++n_used_;
    cells_[size_t(i)] = {.token = r.token, .parent = up, .pos = r.pos, .n_refs = r.n_branches};
    if (up >= 0) {
        ++cells_[size_t(up)].n_refs;
    }
    for (int32_t b = r.branch; b < r.branch + r.n_branches; ++b) {
        let_go(std::exchange(tips_[size_t(b)], i));
    }

    row_end e{.pos = r.pos, .output = r.output};
    int32_t up_one = i;
    for (size_t k = n_tail; k-- > 0;) {
        e.tail[k] = up_one < 0 ? no_token : cells_[size_t(up_one)].token;
        up_one    = up_one < 0 ? up_one : cells_[size_t(up_one)].parent;
    }
    ends_.push_back(e);
}

void synthetic_model::cut(int32_t branch, int32_t pos) {
    int32_t & tip = tips_[size_t(branch)];
    int32_t   i   = tip;
    while (i >= 0 && cells_[size_t(i)].pos >= pos) {
        i = cells_[size_t(i)].parent;
    }
    if (i != tip) {
        if (i >= 0) {
            ++cells_[size_t(i)].n_refs;
        }
        let_go(std::exchange(tip, i));
    }
}

// Takes the rows of this decode() back.
void synthetic_model::undo() {
    for (int32_t b = 0; b < facts_.n_branch; ++b) {
        cut(b, before_[size_t(b)]);
    }
    ends_.clear();
}

decode_status synthetic_model::decode(std::span<const row> rows, const std::atomic<bool> & stop) {
    const int64_t t0 = now_us();
    check(!rows.empty() && rows.size() <= size_t(facts_.n_batch),
          [&] { return std::to_string(rows.size()) + " rows in a batch"; });
    before_.resize(tips_.size());
    for (int32_t b = 0; b < facts_.n_branch; ++b) {
        before_[size_t(b)] = length(b);
    }
    ends_.clear();
    try {
        for (const row & r : rows) {
            append(r);
        }
    } catch (...) {
        undo();
        throw;
    }
    const bool prompt =
        rows.size() > n_prompt_rows && std::any_of(rows.begin(), rows.end(), [](const row & r) { return !r.output; });
    if (!wait_until(t0 + cost_.us(prompt ? 1 : int32_t(rows.size())), stop)) {
        undo();
        return decode_status::stopped;
    }
    return decode_status::ok;
}

const synthetic_model::row_end & synthetic_model::end_of(int32_t i_row) const {
    check(i_row >= 0 && size_t(i_row) < ends_.size() && ends_[size_t(i_row)].output,
          [&] { return "row " + std::to_string(i_row) + " of the last pass has no output"; });
    return ends_[size_t(i_row)];
}

uint64_t synthetic_model::key_of(const row_end & e) const {
    uint64_t h = synthetic_hash(seed_ ^ (uint64_t(e.pos) << 32));
    for (const token_id t : e.tail) {
        h = synthetic_hash(h ^ uint64_t(uint32_t(t)));
    }
    return h;
}

int32_t synthetic_model::candidates(int32_t i_row, const sampling_params & /*sampling*/, std::span<const token_id> text,
                                    std::span<candidate> out) {
    const row_end & e     = end_of(i_row);
    const size_t    n_end = std::min(n_tail, text.size());
    check(text.size() > size_t(e.pos) && // larger after a shift
              std::equal(text.end() - std::ptrdiff_t(n_end), text.end(), e.tail.end() - std::ptrdiff_t(n_end)),
          [&] { return "row " + std::to_string(i_row) + " does not end the text that is to be continued"; });
    if (out.empty()) {
        return 0;
    }
    const uint64_t key    = key_of(e);
    const token_id chosen = token_of(key);
    if (!is_draft_) {
        out[0] = {.token = chosen, .logp = 0.0f};
        return 1;
    }
    const double a_here = agree_.at(e.pos + 1, seed_);
    const double a_told = agree_.says > 0.0 ? agree_.says : agree_.confident ? a_here : agree_.mean();
    const auto   i_true = size_t(agree_.rank_of(synthetic_uniform(synthetic_hash(key ^ for_rank)), a_here));
    const size_t n      = std::min(out.size(), size_t(agreement::n_ranks));
    for (size_t i = 0; i < n; ++i) {
        token_id   t     = i == i_true ? chosen : token_of(synthetic_hash((key ^ for_others) + i));
        const auto taken = [&](token_id x) {
            return x == chosen || std::any_of(out.begin(), out.begin() + std::ptrdiff_t(i),
                                              [x](const candidate & o) { return o.token == x; });
        };
        while (i != i_true && taken(t)) {
            t = t + 1 < facts_.n_vocab ? t + 1 : 0;
        }
        out[i] = {.token = t, .logp = float(std::log(std::max(agree_.chance(int32_t(i), a_told), 1e-9)))};
    }
    return int32_t(n);
}

// One token has all the probability, and all others are equal.
float synthetic_model::logprobs(int32_t i_row, token_id token, std::span<candidate> out) {
    const token_id chosen = token_of(key_of(end_of(i_row)));
    for (size_t i = 0; i < out.size(); ++i) {
        out[i] = {.token = token_of(uint64_t(chosen) + i), .logp = i == 0 ? 0.0f : unlikely};
    }
    return token == chosen ? 0.0f : unlikely;
}

bool synthetic_model::rollback(int32_t branch, int32_t pos) {
    check_branch(branch);
    check(pos >= 0, [&] { return "a rollback to position " + std::to_string(pos); });
    cut(branch, pos);
    return true;
}

bool synthetic_model::shift(int32_t branch, int32_t pos, int32_t n) {
    std::vector<token_id> tokens = cached(branch);
    check(pos >= 0 && n > 0 && size_t(pos) + size_t(n) <= tokens.size(),
          [&] { return "a shift of " + std::to_string(n) + " positions from " + std::to_string(pos) + " on"; });
    tokens.erase(tokens.begin() + pos, tokens.begin() + pos + n);
    cut(branch, pos);
    const std::vector<row_end> ends = ends_; // of the last pass
    for (int32_t i = pos; size_t(i) < tokens.size(); ++i) {
        append({.token = tokens[size_t(i)], .pos = i, .branch = branch});
    }
    ends_ = ends;
    return true;
}

void synthetic_model::fork(int32_t from, int32_t to, int32_t pos) {
    check_branch(from);
    check_branch(to);
    check(from != to && tips_[size_t(to)] < 0,
          [&] { return "a fork to branch " + std::to_string(to) + " that is not empty"; });
    check(pos >= 0, [&] { return "a fork at position " + std::to_string(pos); });
    const int32_t i = tips_[size_t(to)] = tips_[size_t(from)];
    if (i >= 0) {
        ++cells_[size_t(i)].n_refs;
        cut(to, pos);
    }
}

// Pieces are syllables, so that the text is easy to read.
std::string synthetic_model::piece(token_id token) const {
    constexpr std::string_view first = "bdfghklmnprstvwz";
    constexpr std::string_view then  = "aeiou";
    std::string                word  = " ";
    auto                       rest  = uint32_t(std::max(0, token));
    do {
        word += first[rest % first.size()];
        rest /= uint32_t(first.size());
        word += then[rest % then.size()];
        rest /= uint32_t(then.size());
    } while (rest > 0);
    return word;
}

std::vector<token_id> synthetic_model::cached(int32_t branch) const {
    check_branch(branch);
    std::vector<token_id> text(size_t(length(branch)));
    for (int32_t i = tips_[size_t(branch)]; i >= 0; i = cells_[size_t(i)].parent) {
        text[size_t(cells_[size_t(i)].pos)] = cells_[size_t(i)].token;
    }
    return text;
}

} // namespace duo
