#include "translated_model.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace duo {

translated_model::translated_model(llama_token_model & draft, const vocabulary & target, const translation & words)
    : draft_(draft), target_(target), words_(words), facts_(draft.facts()), ends_(size_t(facts_.n_branch)) {
    facts_.n_vocab = words.n_target();
    facts_.n_batch = std::max(1, (facts_.n_batch - 1) / int32_t(translation::n_most)); // one row for a BOS token
    // A token is more than one cell here and there.
    facts_.n_cells = std::max(facts_.n_cells * 2 / 3, std::min(facts_.n_cells, facts_.n_ctx));
    draft_.sampler()->speak(target.get(), words);
}

// After a pass that failed or was stopped, the branches hold what they held before.
decode_status translated_model::decode(std::span<const row> rows, const std::atomic<bool> & stop) {
    rows_.clear();
    at_.clear();
    std::vector<std::pair<int32_t, size_t>> before; // branches, and how many tokens they held
    const auto                              take_back = [&] {
        for (auto b = before.rbegin(); b != before.rend(); ++b) {
            ends_[size_t(b->first)].resize(b->second);
        }
    };
    for (const row & r : rows) {
        const auto tokens = words_.read(r.token);
        const bool bos    = r.pos == 0 && words_.bos() != no_token && tokens.front() != words_.bos();
        int32_t    pos    = begin_of(r.branch, r.pos);
        const auto add    = [&](token_id token, bool output) {
            rows_.push_back(
                {.token = token, .pos = pos++, .branch = r.branch, .n_branches = r.n_branches, .output = output});
        };
        if (pos + int32_t(tokens.size()) + (bos ? 1 : 0) > draft_.facts().n_ctx) {
            at_.push_back(-1); // beyond its context it knows nothing
            pos = draft_.facts().n_ctx;
        } else {
            if (bos) {
                add(words_.bos(), false);
            }
            for (size_t i = 0; i < tokens.size(); ++i) {
                add(tokens[i], r.output && i + 1 == tokens.size());
            }
            at_.push_back(int32_t(rows_.size()) - 1);
        }
        for (int32_t b = r.branch; b < r.branch + r.n_branches; ++b) {
            before.emplace_back(b, ends_[size_t(b)].size());
            ends_[size_t(b)].push_back(pos);
        }
    }
    if (rows_.empty()) {
        return decode_status::ok;
    }
    try {
        const decode_status status = draft_.decode(rows_, stop);
        if (status == decode_status::stopped) {
            take_back();
        }
        return status;
    } catch (...) {
        take_back();
        throw;
    }
}

int32_t translated_model::candidates(int32_t i_row, const sampling_params & sampling, std::span<const token_id> text,
                                     std::span<candidate> out) {
    const int32_t at = at_.at(size_t(i_row));
    return at < 0 ? 0 : draft_.candidates(at, sampling, text, out);
}

void translated_model::chances(int32_t i_row, const sampling_params & sampling, std::span<const token_id> text,
                               std::vector<candidate> & out) {
    out.clear();
    if (const int32_t at = at_.at(size_t(i_row)); at >= 0) {
        draft_.chances(at, sampling, text, out);
    }
}

float translated_model::logprobs(int32_t i_row, token_id token, std::span<candidate> out) {
    return draft_.logprobs(std::max(0, at_.at(size_t(i_row))), token, out); // asked of targets only
}

bool translated_model::rollback(int32_t branch, int32_t pos) {
    auto &     ends = ends_[size_t(branch)];
    const auto n    = std::clamp(pos, 0, int32_t(ends.size()));
    if (!draft_.rollback(branch, begin_of(branch, n))) { // after a failure it may hold rows that no token has
        return false;
    }
    ends.resize(size_t(n));
    return true;
}

void translated_model::fork(int32_t from, int32_t to, int32_t pos) {
    draft_.fork(from, to, begin_of(from, pos));
    ends_[size_t(to)].assign(ends_[size_t(from)].begin(), ends_[size_t(from)].begin() + pos);
}

// The draft's cells, then the ends, then their number. Tokens beyond its context have no cells: who restores it reads
// them again.
std::string translated_model::save(int32_t branch) const {
    std::string  all  = draft_.save(branch);
    const auto & ends = ends_[size_t(branch)];
    auto         n    = int32_t(ends.size());
    while (n > 0 && (ends[size_t(n) - 1] > draft_.n_held(branch) || ends[size_t(n) - 1] == begin_of(branch, n - 1))) {
        --n;
    }
    all.append(reinterpret_cast<const char *>(ends.data()), size_t(n) * sizeof(int32_t));
    all.append(reinterpret_cast<const char *>(&n), sizeof n);
    return all;
}

void translated_model::restore(int32_t branch, std::span<const char> saved) {
    auto &  ends = ends_[size_t(branch)];
    int32_t n    = -1;
    ends.clear();
    if (saved.size() >= sizeof n) {
        std::memcpy(&n, saved.last(sizeof n).data(), sizeof n);
        saved = saved.first(saved.size() - sizeof n);
    }
    const size_t         n_bytes = size_t(std::max(n, 0)) * sizeof(int32_t);
    std::vector<int32_t> found(n_bytes <= saved.size() ? size_t(std::max(n, 0)) : 0);
    if (n < 0 || n_bytes > saved.size()) {
        draft_.rollback(branch, 0);
        throw error(error_kind::bad_value, "the saved state is of a draft with the target's vocabulary");
    }
    std::memcpy(found.data(), saved.last(n_bytes).data(), n_bytes);
    draft_.restore(branch, saved.first(saved.size() - n_bytes));
    int32_t last = 0;
    for (const int32_t end : found) {
        if (end <= last) {
            draft_.rollback(branch, 0);
            throw error(error_kind::bad_value, "the saved state is damaged; evaluate the text again");
        }
        last = end;
    }
    if (last != draft_.n_held(branch)) {
        draft_.rollback(branch, 0);
        throw error(error_kind::bad_value, "the saved state does not fit this draft; evaluate the text again");
    }
    ends = std::move(found);
}

} // namespace duo
