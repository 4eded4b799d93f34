#include "verify_text.h"

#include <algorithm>

#include "base/clock.h"

namespace duo {

namespace {

// A head's guesses below the row that the walk has reached. next: the right one; -1: none.
void count_ages(verify_stats & st, const text_guesses & guesses, int32_t i_row, int32_t next) {
    const auto & rows = guesses.tree().rows();
    for (int32_t i = i_row + 1; i < int32_t(rows.size()); ++i) {
        const int32_t age = rows[size_t(i)].parent == i_row ? guesses.age_of(i) : no_age;
        if (age >= 0) {
            const size_t n = guess_record::place_of(age);
            ++st.n_tested_of_age[n];
            st.n_accepted_of_age[n] += i == next ? 1 : 0;
        }
    }
}

} // namespace

void verify_text::begin(request & req, const other_texts & others) {
    req_                 = &req;
    finish_              = req.n_predict == 0 ? finish_reason::length : finish_reason::none;
    n_drop_              = 0;
    t_verdict_           = 0;
    elsewhere_us_        = 0;
    req.stats            = {};
    req.stats.t_begin_us = now_us();
    req.stats.n_prompt   = int32_t(req.prompt.size());
    tokens_              = req.prompt;
    // A text with pictures is not shifted, as in llama-server: where positions have two dimensions, keys cannot move.
    context_.begin(tokens_, req.pictures.empty() ? req.shift : context_shift{}, model_.facts().n_ctx);
    guesses_.begin(req, tokens_, others);
    stops_.begin(req.stop);
    resume();
}

void verify_text::end() {
    req_ = nullptr;
}

void verify_text::shift() {
    context_.shift();
    ++req_->stats.n_shifts;
    t_verdict_ = elsewhere_us_ = 0; // the next pass takes longer, whatever is drafted
}

// Reads what was generated before a link was lost. A stop string may have begun in it, or the text may lack only its
// end.
void verify_text::resume() {
    for (size_t i = tokens_.size() - size_t(req_->n_generated); i < tokens_.size(); ++i) {
        if (model_.is_end(tokens_[i])) {
            finish_ = finish_reason::stop;
            return;
        }
        if (const auto r = stops_.add(model_.piece(tokens_[i])); r.stopped) {
            finish_ = finish_reason::stop;
            n_drop_ = int32_t(r.n_drop);
            return;
        }
    }
    if (req_->n_generated > 0 && context_.is_full()) {
        finish_ = finish_reason::length;
    }
}

int32_t verify_text::n_room(size_t n_cached) const {
    const auto    n_missing = int32_t(context_.tokens().size() - n_cached);
    const int32_t n         = std::min(context_.n_room(), model_.facts().n_batch - n_missing);
    return req_->n_predict < 0 ? n : std::min(n, req_->n_predict - req_->stats.n_predicted - 1);
}

void verify_text::begin_walk(stance now) {
    verify_stats & st = req_->stats;
    ++st.n_passes;
    ++st.n_passes_in[size_t(now)];
    const pass_tree & tree   = guesses_.tree();
    const auto        n_rows = int32_t(tree.rows().size());
    st.n_verifications += n_rows == 0 ? 0 : 1;
    st.n_drafted += n_rows;
    for (int32_t i = 0; i < n_rows; ++i) {
        st.n_ngram += tree.at_row(i).i_node < 0 ? 1 : 0;
        st.n_path += tree.rows()[size_t(i)].branch == 0 ? 1 : 0;
    }
    accepted_.clear();
    guesses_.begin_walk();
}

bool verify_text::step(token_id token, guess_record & record) {
    verify_stats &    st    = req_->stats;
    const pass_tree & tree  = guesses_.tree();
    const int32_t     i_row = row();
    const auto        level = int32_t(accepted_.size());
    guesses_.learn(i_row, level, token, req_->sampling, record);
    st.n_tested_at[size_t(std::min(level, n_draft_cap - 1))] += tree.has_child_row(i_row) ? 1 : 0;
    const int32_t next = tree.child_row(i_row, token);
    count_ages(st, guesses_, i_row, next);
    if (next >= 0) {
        ++st.n_accepted;
        ++st.n_accepted_at[size_t(level)];
        st.n_ngram_accepted += tree.at_row(next).i_node < 0 ? 1 : 0;
        st.n_path_accepted += tree.rows()[size_t(next)].branch == 0 ? 1 : 0;
        accepted_.push_back(next);
    }
    tokens_.push_back(token);
    context_.add(token);
    return next >= 0;
}

bool verify_text::end_walk_at_row() {
    if (accepted_.empty()) {
        return false;
    }
    accepted_.pop_back();
    return true;
}

chunk_msg verify_text::make_chunk(bool from_draft) {
    verify_stats & st = req_->stats;
    chunk_msg      chunk{.from_draft = from_draft, .slot = req_->slot, .token = tokens_.back(), .t_us = now_us()};
    if (++st.n_predicted == 1) {
        st.t_first_us = chunk.t_us;
    }
    if (model_.is_end(chunk.token)) {
        chunk.hidden = true;
        finish_      = finish_reason::stop;
        return chunk;
    }
    const auto r = stops_.add(model_.piece(chunk.token));
    chunk.n_hold = int32_t(r.stopped ? r.n_drop : r.n_hold);
    if (r.stopped) {
        finish_ = finish_reason::stop;
        n_drop_ = int32_t(r.n_drop);
    } else if (st.n_predicted == req_->n_predict || (context_.is_full() && !context_.shift_due())) {
        finish_ = finish_reason::length;
    }
    return chunk;
}

std::optional<int64_t> verify_text::us_since_verdict(int64_t now) const {
    return t_verdict_ == 0 ? std::nullopt : std::optional(now - t_verdict_);
}

void verify_text::commit(int64_t now, std::vector<verdict_msg> & out) {
    verify_stats & st = req_->stats;
    if (const auto us = us_since_verdict(now); us.has_value()) {
        const bool hit = guesses_.was_hit();
        st.overhead_us += *us - elsewhere_us_;
        st.n_after_hit += hit ? 1 : 0;
        (hit ? st.n_tokens_after_hit : st.n_tokens_after_miss) += int32_t(accepted_.size()) + 1;
    }
    t_verdict_    = now;
    elsewhere_us_ = 0;
    guesses_.commit(accepted_, tokens_, out);
    st.n_hits += guesses_.was_hit() ? 1 : 0;
}

void verify_text::count_elsewhere(int64_t busy_us, int64_t wait_us) {
    req_->stats.busy_us += busy_us;
    req_->stats.wait_us += wait_us;
    elsewhere_us_ += busy_us + wait_us;
}

} // namespace duo
