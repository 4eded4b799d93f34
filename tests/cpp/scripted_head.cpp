#include "scripted_head.h"

namespace duo_test {

scripted_head::scripted_head(const behaviour & b) : scripted_base(b) {
    facts_.n_inputs = n_text_state;
    facts_.n_state  = n_text_state;
    facts_.n_levels = b_.n_levels;
}

scripted_head::~scripted_head() = default;

void scripted_head::encode(std::span<const float> features, std::span<float> out) {
    REQUIRE_EQ(features.size(), out.size());
    REQUIRE(!features.empty() && features.size() <= size_t(b_.n_batch) * n_text_state, "n_batch respected");
    std::copy(features.begin(), features.end(), out.begin());
    n_true += int64_t(features.size()) / n_text_state;
}

decode_status scripted_head::decode(std::span<const row> rows, const std::atomic<bool> & stop) {
    const int64_t n = n_decoded.fetch_add(1);
    REQUIRE(!rows.empty() && int32_t(rows.size()) <= b_.n_batch, "n_batch respected");
    rows_.assign(rows.begin(), rows.end());
    hashes_.clear();
    for (const row & r : rows) {
        REQUIRE(r.pos > 0 && r.pos < b_.n_ctx, "there is no row without a state before it");
        REQUIRE(r.state != nullptr, "each row has a state");
        const bool bridged = int32_t(r.state[0]) > r.pos && !r.output;
        REQUIRE(bridged || int32_t(r.state[0]) == r.pos, "the state is that of the position before");
        n_bridged += bridged ? 1 : 0;
        REQUIRE_EQ(r.n_branches, 1);
        REQUIRE(r.n_levels == 1 || r.output, "only outputs have levels");
        REQUIRE(r.n_levels <= b_.n_levels && r.pos + r.n_levels <= b_.n_ctx, "levels respected");
        span & held = cache_[size_t(r.branch)];
        REQUIRE(held.first == held.end || held.end == r.pos, "positions are contiguous");
        held = {held.first == held.end ? r.pos : held.first, r.pos + 1};
        hashes_.push_back(hash_after(hash_in(r.state), r.token));
    }
    if (b_.delay_us > 0) {
        loiter(hash64(b_.delay_seed ^ uint64_t(n)), b_.delay_us);
    }
    if (stop.load() && b_.heeds_stop) {
        for (size_t i = rows.size(); i-- > 0;) {
            cut(rows[i].branch, rows[i].pos);
        }
        return decode_status::stopped;
    }
    if (n == b_.throw_at) {
        throw duo::error("decode " + std::to_string(n) + " fails");
    }
    return decode_status::ok;
}

void scripted_head::state(int32_t i_row, std::span<float> out) const {
    REQUIRE(rows_[size_t(i_row)].output && b_.n_levels == 1, "only output rows are asked");
    write_state(out, size_t(rows_[size_t(i_row)].pos) + 1, hashes_[size_t(i_row)]);
}

int32_t scripted_head::candidates(int32_t i_row, const sampling_params & s, std::span<const token_id> text,
                                  std::span<candidate> out) {
    const row &  r     = rows_[size_t(i_row)];
    const size_t n_row = size_t(r.pos) + 1;
    REQUIRE(r.output, "only output rows are asked");
    REQUIRE(text.size() >= n_row && text.size() < n_row + size_t(r.n_levels), "text up to a level of the row");
    REQUIRE_EQ(hash_of(text.first(n_row)), hashes_[size_t(i_row)], "the row was made of states of this text");
    std::vector<token_id> own(text.begin(), text.begin() + std::ptrdiff_t(n_row));
    auto                  all = after(own, s);
    while (own.size() < text.size()) {
        own.push_back(all.front().token);
        all = after(own, s);
    }
    const size_t n_out = std::min(out.size(), all.size());
    std::copy_n(all.begin(), n_out, out.begin());
    return int32_t(n_out);
}

bool scripted_head::rollback(int32_t branch, int32_t pos) {
    cut(branch, pos);
    return true;
}

void scripted_head::fork(int32_t from, int32_t to, int32_t pos) {
    REQUIRE(from != to && cache_[size_t(to)].first == cache_[size_t(to)].end, "only an empty branch is forked to");
    const span & held  = cache_[size_t(from)];
    cache_[size_t(to)] = {held.first, std::max(held.first, std::min(held.end, pos))};
}

std::string scripted_head::save(int32_t branch) const {
    const span & held = cache_[size_t(branch)];
    return std::to_string(held.first) + " " + std::to_string(held.end);
}

void scripted_head::restore(int32_t branch, std::span<const char> saved) {
    std::istringstream in(std::string(saved.begin(), saved.end()));
    in >> cache_[size_t(branch)].first >> cache_[size_t(branch)].end;
    REQUIRE(bool(in), "what was saved is whole");
}

std::vector<candidate> scripted_head::after(std::span<const token_id> text, const sampling_params & s) const {
    auto all = b_.lang.after(text, b_.agree, b_.accent, b_.second);
    language::choose(all, s, text);
    return all;
}

void scripted_head::cut(int32_t branch, int32_t pos) {
    span & held = cache_[size_t(branch)];
    held        = pos <= held.first ? span{} : span{held.first, std::min(held.end, pos)};
}

} // namespace duo_test
