#include "scripted_model.h"

#include <bit>

namespace duo_test {

scripted_model::scripted_model(const behaviour & b) : scripted_base(b) {
    facts_.undo       = b_.undo;
    facts_.n_undo     = keeps_state() ? b_.n_undo : facts_.n_undo;
    facts_.n_features = b_.has_features ? n_text_state : 0;
}

scripted_model::~scripted_model() = default;

int32_t scripted_model::n_undo_together(int32_t n_texts) const {
    return !keeps_state() || n_texts < 2     ? facts_.n_undo
           : b_.undo == duo::undo_kind::copy ? std::min(b_.n_together, 0)
                                             : b_.n_together;
}

void scripted_model::use_threads(int32_t n) {
    const one_at_a_time guard(*this);
    REQUIRE(n >= 0 && size_t(n) < n_decoded_with.size());
    n_threads_ = size_t(n);
}

decode_status scripted_model::decode(std::span<const row> rows, const std::atomic<bool> & stop) {
    const one_at_a_time guard(*this);
    ++n_decoded_with[n_threads_];
    const int64_t        n    = n_decoded.fetch_add(1);
    const duo::picture * seen = rows.empty() ? nullptr : rows.front().picture;
    REQUIRE(seen == nullptr || int32_t(rows.size()) == static_cast<const scripted_picture &>(*seen).n_rows,
            "a picture is read as a whole");
    REQUIRE(!rows.empty() && (seen != nullptr || int32_t(rows.size()) <= b_.n_batch), "n_batch respected");
    rows_.assign(rows.begin(), rows.end());
    n_foreseen += std::ranges::count_if(
        rows, [this](const row & r) { return std::ranges::find(expected_, r.token) != expected_.end(); });
    expected_.clear();
    const bool drops = b_.drops_one && rows.size() == 1 && rows.front().output;
    std::fill(n_back_.begin(), n_back_.end(), 0);
    for (int32_t b = 0; keeps_state() && b < b_.n_branch; ++b) {
        keep_state(b, rows, drops);
    }
    texts_.clear();
    for (const row & r : rows) {
        REQUIRE(r.pos < b_.n_ctx, "n_ctx respected");
        REQUIRE(r.branch >= 0 && r.n_branches >= 1 && r.branch + r.n_branches <= b_.n_branch, "branches exist");
        REQUIRE(r.picture == seen && duo::is_picture(r.token) == (seen != nullptr) && (seen == nullptr || !r.output),
                "a pass has one picture, or tokens");
        if (seen == nullptr && (r.token < 0 || r.token >= b_.lang.n_vocab)) {
            throw duo::error("token outside the vocabulary");
        }
        ++n_cells_made_;
        for (int32_t b = r.branch; b < r.branch + r.n_branches; ++b) {
            branch_cells & own = cache_[size_t(b)];
            REQUIRE_EQ(size_t(r.pos), own.id.size(), "positions are contiguous, and what is cached was rolled back");
            REQUIRE(own.scale.empty() || own.scale.back() == scale_, "the cells were computed with the same scales");
            REQUIRE(b == r.branch || std::equal(own.id.begin(), own.id.end(), cache_[size_t(b) - 1].id.begin()),
                    "a row's branches share a past");
        }
        for (int32_t b = r.branch; b < r.branch + r.n_branches; ++b) {
            cache_[size_t(b)].token.push_back(r.token);
            cache_[size_t(b)].id.push_back(n_cells_made_);
            cache_[size_t(b)].scale.push_back(scale_);
        }
        texts_.push_back(r.output || b_.has_features ? cache_[size_t(r.branch)].token : std::vector<token_id>());
    }
    check_room();
    if (b_.pass_us > 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(b_.pass_us));
    }
    if (b_.delay_us > 0) {
        loiter(hash64(b_.delay_seed ^ uint64_t(n)), b_.delay_us);
    }
    if (n == b_.hang_at) {
        hanging_.store(true);
        hanging_.notify_all();
        while (!released_.load() && !(b_.heeds_stop && stop.load())) {
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
    }
    if (stop.load() && b_.heeds_stop) {
        undo(rows, 0);
        return decode_status::stopped;
    }
    const bool poisoned =
        std::any_of(rows.begin(), rows.end(), [this](const row & r) { return r.pos == 0 && r.token == b_.poison; });
    if (n == b_.throw_at || poisoned) {
        undo(rows, rows.size() / 2);
        tell_thrown();
        throw duo::error(duo::error_kind::context_full, "decode " + std::to_string(n) + " fails");
    }
    if (drops) {
        cache_[size_t(rows[0].branch)].cut(size_t(n_copied_[size_t(rows[0].branch)]));
    }
    return decode_status::ok;
}

int32_t scripted_model::candidates(int32_t i_row, const sampling_params & s, std::span<const token_id> text,
                                   std::span<candidate> out) {
    const one_at_a_time guard(*this);
    check_row(i_row);
    const auto n_read = size_t(rows_[size_t(i_row)].pos) + 1;
    const auto n      = text.size();
    REQUIRE(n == n_read || (n > n_read && b_.windows), "text up to the row");
    n_skipping += n > n_read ? 1 : 0;
    REQUIRE_EQ(n_read, texts_[size_t(i_row)].size());
    REQUIRE(is_view(texts_[size_t(i_row)], text, b_.sinks ? duo::draft_window::n_sink : 0),
            "what is cached is the text, or its beginning and its end");
    const std::vector<token_id> own(text.begin(), text.end());
    if (n_chosen_++ == b_.throw_choice) {
        tell_thrown();
        throw duo::error(duo::error_kind::context_full, "choice fails");
    }
    // A grammar is a number here: so many tokens after the prompt, the text is complete.
    if (!s.grammar.empty() && n >= size_t(s.n_prompt) + std::stoul(s.grammar)) {
        return 0;
    }
    auto all = b_.lang.after(own, n < b_.dull_until ? 0.0 : b_.agree, b_.accent, b_.second, s.n_left_out);
    language::choose(all, s, text);
    const size_t n_out = std::min(out.size(), all.size());
    std::copy_n(all.begin(), n_out, out.begin());
    return int32_t(n_out);
}

void scripted_model::features(int32_t i_row, std::span<float> out) const {
    REQUIRE(i_row >= 0 && size_t(i_row) < texts_.size());
    const auto & text = texts_[size_t(i_row)];
    write_state(out, text.size(), hash_of(text));
}

float scripted_model::logprobs(int32_t i_row, token_id token, std::span<candidate> out) {
    const one_at_a_time guard(*this);
    check_row(i_row);
    const auto all = b_.lang.after(texts_[size_t(i_row)]);
    REQUIRE(out.size() <= all.size());
    std::copy_n(all.begin(), out.size(), out.begin());
    for (const candidate & c : all) {
        if (c.token == token) {
            return c.logp;
        }
    }
    return -100.0f;
}

bool scripted_model::rollback(int32_t branch, int32_t pos) {
    const one_at_a_time guard(*this);
    REQUIRE(branch >= 0 && branch < b_.n_branch && pos >= 0);
    auto & cached = cache_[size_t(branch)];
    if (pos > 0 && size_t(pos) < cached.id.size()) {
        const bool near = int32_t(cached.id.size()) - pos <= n_back_[size_t(branch)];
        if (!b_.can_rollback || (keeps_state() && !near)) {
            return false;
        }
    }
    if (size_t(pos) < cached.id.size()) {
        REQUIRE_EQ(row_of_picture(cached.token[size_t(pos)]), 0, "a picture goes as a whole");
        n_back_[size_t(branch)]   = 0; // once
        n_copied_[size_t(branch)] = pos == 0 ? -1 : n_copied_[size_t(branch)];
    }
    std::erase_if(marks_[size_t(branch)], [pos](int32_t m) { return m > pos; });
    cached.cut(size_t(pos));
    return true;
}

bool scripted_model::shift(int32_t branch, int32_t pos, int32_t n) {
    const one_at_a_time guard(*this);
    branch_cells &      cached = cache_[size_t(branch)];
    REQUIRE(pos >= 0 && n > 0 && size_t(pos + n) < cached.id.size(), "what is shifted is there");
    if (!b_.shifts || keeps_state()) {
        return false;
    }
    cached.leave_out(pos, n);
    ++n_shifted;
    return true;
}

void scripted_model::mark(int32_t branch) {
    if (b_.marks) {
        marks_[size_t(branch)].push_back(n_held(branch));
    }
}

int32_t scripted_model::take_back(int32_t branch, int32_t pos) {
    branch_cells & cached   = cache_[size_t(branch)];
    auto &         marks    = marks_[size_t(branch)];
    const int32_t  n_copied = n_copied_[size_t(branch)];
    if (size_t(pos) >= cached.id.size() || rollback(branch, pos)) {
        return std::min(pos, n_held(branch));
    }
    int32_t n = b_.undo == duo::undo_kind::copy && n_copied <= pos ? n_copied : -1;
    for (const int32_t m : marks) {
        n = m <= pos ? std::max(n, m) : n;
    }
    if (n <= 0) {
        return token_model::take_back(branch, pos);
    }
    n_copied_[size_t(branch)] = n == n_copied ? n : -1;
    std::erase_if(marks, [n](int32_t m) { return m > n; });
    cached.cut(size_t(n));
    return n;
}

void scripted_model::fork(int32_t from, int32_t to, int32_t pos) {
    const one_at_a_time guard(*this);
    REQUIRE(from != to && from >= 0 && from < b_.n_branch && to >= 0 && to < b_.n_branch);
    REQUIRE(cache_[size_t(to)].id.empty(), "only an empty branch is forked to");
    REQUIRE(pos >= 0 && size_t(pos) <= cache_[size_t(from)].id.size(), "what is shared is there");
    REQUIRE(!keeps_state() || size_t(pos) == cache_[size_t(from)].id.size(), "a state is shared as it is");
    cache_[size_t(to)] = cache_[size_t(from)];
    cache_[size_t(to)].cut(size_t(pos));
}

int64_t scripted_model::saved_bytes(int32_t branch) const {
    return int64_t((2 + cache_[size_t(branch)].token.size()) * sizeof(token_id));
}

std::string scripted_model::save(int32_t branch) const {
    ++n_saved;
    const branch_cells &  b = cache_[size_t(branch)];
    std::vector<token_id> all{token_id(b.token.size()), b.scale.empty() ? 0 : std::bit_cast<token_id>(b.scale.back())};
    all.insert(all.end(), b.token.begin(), b.token.end());
    return {reinterpret_cast<const char *>(all.data()), all.size() * sizeof(token_id)};
}

void scripted_model::restore(int32_t branch, std::span<const char> saved) {
    const one_at_a_time   guard(*this);
    std::vector<token_id> all(saved.size() / sizeof(token_id));
    std::copy_n(saved.data(), all.size() * sizeof(token_id), reinterpret_cast<char *>(all.data()));
    branch_cells & b = cache_[size_t(branch)];
    b.cut(0);
    marks_[size_t(branch)].clear();
    if (all.size() < 2 || all.front() != token_id(all.size()) - 2) {
        throw duo::error("what was saved does not fit");
    }
    for (size_t i = 2; i < all.size(); ++i) {
        b.token.push_back(all[i]);
        b.scale.push_back(std::bit_cast<float>(all[1]));
        b.id.push_back(++n_cells_made_);
    }
    ++n_restored;
    check_room();
}

bool scripted_model::is_view(std::span<const token_id> own, std::span<const token_id> text, int32_t n_least) {
    const auto n_first = std::mismatch(own.begin(), own.end(), text.begin()).first - own.begin();
    const auto n_last  = std::mismatch(own.rbegin(), own.rend(), text.rbegin()).first - own.rbegin();
    return own.size() == text.size() ? n_first == std::ssize(own)
                                     : n_first >= n_least && n_first + n_last >= std::ssize(own);
}

void scripted_model::keep_state(int32_t branch, std::span<const row> rows, bool drops) {
    const auto mine  = [branch](const row & r) { return r.branch == branch; };
    const auto n     = int32_t(std::count_if(rows.begin(), rows.end(), mine));
    const auto n_out = std::count_if(rows.begin(), rows.end(), [&](const row & r) { return mine(r) && r.output; });
    if (n > 0 && (drops || n_out > 1)) {
        n_copied_[size_t(branch)] = int32_t(cache_[size_t(branch)].id.size());
    }
    n_back_[size_t(branch)] = b_.undo == duo::undo_kind::snapshots ? std::min(b_.n_undo, std::max(0, n - 1)) : 0;
    const bool together     = b_.is_target && size_t(n) < rows.size();
    REQUIRE(!together || n - 1 <= n_undo_together(2), "a text in company has few guesses");
    REQUIRE(!together || n_out == n, "a text in company reads nothing");
}

void scripted_model::tell_thrown() {
    thrown_.store(true);
    thrown_.notify_all();
}

void scripted_model::check_row(int32_t i_row) const {
    REQUIRE(i_row >= 0 && size_t(i_row) < rows_.size());
    REQUIRE(rows_[size_t(i_row)].output, "only output rows are asked");
}

void scripted_model::undo(std::span<const row> rows, size_t n) {
    for (size_t i = rows.size(); i-- > n;) {
        for (int32_t b = rows[i].branch; b < rows[i].branch + rows[i].n_branches; ++b) {
            cache_[size_t(b)].cut(size_t(rows[i].pos));
        }
    }
}

void scripted_model::check_room() const {
    size_t n = 0; // shared cells count again; to count distinct ones takes longer than all the rest
    for (const branch_cells & b : cache_) {
        n += b.id.size();
    }
    REQUIRE(n <= size_t(facts_.n_cells) || n_distinct() <= size_t(facts_.n_cells), "the cache is not overfilled");
}

size_t scripted_model::n_distinct() const {
    std::vector<int64_t> ids;
    for (const branch_cells & b : cache_) {
        ids.insert(ids.end(), b.id.begin(), b.id.end());
    }
    std::sort(ids.begin(), ids.end());
    return size_t(std::unique(ids.begin(), ids.end()) - ids.begin());
}

} // namespace duo_test
