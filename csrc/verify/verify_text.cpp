#include "verify_text.h"

#include <algorithm>

#include "base/clock.h"

namespace duo {

void verify_text::begin(request & req) {
    req_                 = &req;
    finish_              = req.n_predict == 0 ? finish_reason::length : finish_reason::none;
    n_drop_              = 0;
    t_verdict_           = 0;
    elsewhere_us_        = 0;
    was_hit_             = false;
    req.stats            = {};
    req.stats.t_begin_us = now_us();
    req.stats.n_prompt   = int32_t(req.prompt.size());
    tokens_              = req.prompt;
    mirror_.begin(req.id, tokens_);
    proposals_.begin();
    ngrams_.begin(req.plan.ngram, tokens_);
    stops_.begin(req.stop);
    shape_ = tree_shape(req.plan.tree);
    resume();
}

void verify_text::end() {
    req_ = nullptr;
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
    if (req_->n_generated > 0 && n_tokens() >= model_.n_ctx()) {
        finish_ = finish_reason::length;
    }
}

int32_t verify_text::n_room(size_t n_cached) const {
    const int32_t n = std::min(model_.n_ctx(), model_.n_batch() + int32_t(n_cached)) - n_tokens();
    return req_->n_predict < 0 ? n : std::min(n, req_->n_predict - req_->stats.n_predicted - 1);
}

mirror_tree::news verify_text::on_node(const node_msg & msg, guess_record & guesses) {
    const auto what = mirror_.insert(msg, tokens_);
    if (what == mirror_tree::news::grown) {
        proposals_.on_draw(msg);
    }
    const bool right = what == mirror_tree::news::named_right;
    // A guess that came too late to be verified still counts as right or wrong.
    if (msg.guess && (right || what == mirror_tree::news::guess_wrong)) {
        guesses.on_child(msg.logp, right, msg.age);
        if (msg.rank == 0) {
            guesses.on_guess(0, right, true, msg.age);
        }
    }
    return what;
}

void verify_text::on_share(const node_msg & msg) {
    if (mirror_.tree().find(msg.parent) >= 0) {
        proposals_.on_share(msg);
    }
}

void verify_text::grow_tree(const guess_record & guesses, double least, int32_t n_room) {
    n_repeats_ = 0;
    if (!shape_.empty()) {
        shape_.match(mirror_.tree(), places_);
        tree_.begin(mirror_.tree(), guesses, shape_, places_);
        return;
    }
    tree_.begin(mirror_.tree(), guesses, least);
    if (req_->plan.ngram.kind != ngram_kind::none && req_->plan.mode != run_mode::plain) {
        add_ngrams(guesses, least, std::min(n_room, n_draft_cap));
    }
}

void verify_text::add_ngrams(const guess_record & guesses, double least, int32_t n_most) {
    n_repeats_     = ngrams_.propose(tokens_, {}, n_most, repeats_);
    int32_t n_hits = 0;
    for (size_t i = 0; i < n_repeats_; ++i) {
        n_hits += repeats_[i].n_hits;
    }
    for (size_t i = 0; i < n_repeats_; ++i) {
        const double share = double(repeats_[i].n_hits) / std::max(1, n_hits);
        tree_.add_ngram(-1, repeats_[i], guesses, least, share);
    }
    // Also at the end of the best path: where the drafted path repeats a passage of the text, n-grams continue it.
    const auto & path = tree_.best_path();
    if (!path.empty() && int32_t(path.size()) < n_most) {
        tail_.clear();
        for (const int32_t i : path) {
            tail_.push_back(tree_.nodes()[size_t(i)].token);
        }
        if (ngrams_.propose(tokens_, tail_, n_most - int32_t(path.size()), std::span(&proposal_below_, 1)) == 1) {
            tree_.add_ngram(path.back(), proposal_below_, guesses, least);
        }
    }
}

void verify_text::begin_walk(stance now) {
    verify_stats & st = req_->stats;
    ++st.n_passes;
    ++st.n_passes_in[size_t(now)];
    const auto n_rows = int32_t(tree_.rows().size());
    st.n_verifications += n_rows == 0 ? 0 : 1;
    st.n_drafted += n_rows;
    for (int32_t i = 0; i < n_rows; ++i) {
        st.n_ngram += tree_.at_row(i).i_node < 0 ? 1 : 0;
        st.n_path += tree_.rows()[size_t(i)].branch == 0 ? 1 : 0;
    }
    accepted_.clear();
    ngram_right_ = true;
}

guesses_below verify_text::guesses_at(int32_t i_row) {
    const int32_t i_node = i_row < 0 ? 0 : tree_.at_row(i_row).i_node;
    if (acceptance::draws(req_->sampling)) {
        return i_node < 0 ? guesses_below{} : proposals_.below(mirror_.tree().at(i_node).id);
    }
    below_.clear();
    for (int32_t i = i_row + 1; i < int32_t(tree_.rows().size()); ++i) {
        if (tree_.rows()[size_t(i)].parent == i_row) {
            below_.push_back(tree_.at_row(i).token);
        }
    }
    return {.tokens = below_, .shares = {}};
}

bool verify_text::step(token_id token, guess_record & guesses) {
    verify_stats & st    = req_->stats;
    const int32_t  i_row = row();
    const int32_t  level = n_accepted();
    learn_from(i_row < 0 ? 0 : tree_.at_row(i_row).i_node, level, token, guesses);
    if (ngram_right_ && n_repeats_ > 0 && size_t(level) < repeats_[0].tokens.size()) {
        ngram_right_ = repeats_[0].tokens[size_t(level)] == token;
        guesses.on_ngram(repeats_[0].n_match, level, ngram_right_);
    }
    st.n_tested_at[size_t(std::min(level, n_draft_cap - 1))] += tree_.has_child_row(i_row) ? 1 : 0;
    const int32_t next = tree_.child_row(i_row, token);
    count_ages(i_row, next);
    if (next >= 0) {
        ++st.n_accepted;
        ++st.n_accepted_at[size_t(level)];
        st.n_ngram_accepted += tree_.at_row(next).i_node < 0 ? 1 : 0;
        st.n_path_accepted += tree_.rows()[size_t(next)].branch == 0 ? 1 : 0;
        accepted_.push_back(next);
    }
    tokens_.push_back(token);
    return next >= 0;
}

// A head's guesses below the row that the walk has reached. next: the right one; -1: none.
void verify_text::count_ages(int32_t i_row, int32_t next) {
    verify_stats & st = req_->stats;
    for (int32_t i = i_row + 1; i < int32_t(tree_.rows().size()); ++i) {
        const int32_t i_node = tree_.rows()[size_t(i)].parent == i_row ? tree_.at_row(i).i_node : -1;
        const int32_t age    = i_node < 0 ? no_age : mirror_.tree().at(i_node).age;
        if (age >= 0) {
            const size_t n = guess_record::place_of(age);
            ++st.n_tested_of_age[n];
            st.n_accepted_of_age[n] += i == next ? 1 : 0;
        }
    }
}

bool verify_text::end_walk_at_row() {
    if (accepted_.empty()) {
        return false;
    }
    accepted_.pop_back();
    return true;
}

// Counts all guesses below an accepted node, verified or not: the target's choice says which was right.
void verify_text::learn_from(int32_t i_node, int32_t level, token_id chosen, guess_record & guesses) {
    if (i_node < 0) {
        return; // an n-gram's token
    }
    const token_tree & tree = mirror_.tree();
    // Draws are tried in their order. Of a head's guesses the first one need not be the best any more.
    const bool    draws = acceptance::draws(req_->sampling);
    const int32_t best  = draws ? tree.first_child(i_node) : tree.likeliest_child(i_node);
    int32_t       right = -1;
    said_.clear();
    for (int32_t i = tree.first_child(i_node); i >= 0; i = tree.at(i).next) {
        const auto & nd       = tree.at(i);
        const bool   is_right = nd.token == chosen;
        right                 = is_right ? int32_t(said_.size()) : right;
        said_.push_back(nd.logp);
        guesses.on_child(nd.logp, is_right, nd.age);
        if (i == best) {
            guesses.on_guess(level, is_right, !was_hit_, nd.age);
        }
    }
    guesses.on_choice(said_, right);
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
    } else if (st.n_predicted == req_->n_predict || n_tokens() >= model_.n_ctx()) {
        finish_ = finish_reason::length;
    }
    return chunk;
}

int32_t verify_text::n_accepted_on_best_path() const {
    return int32_t(std::count_if(accepted_.begin(), accepted_.end(),
                                 [this](int32_t i) { return tree_.rows()[size_t(i)].branch == 0; }));
}

std::optional<int64_t> verify_text::us_since_verdict(int64_t now) const {
    return t_verdict_ == 0 ? std::nullopt : std::optional(now - t_verdict_);
}

// The text has grown by the accepted nodes and one token more. The draft knows its own nodes by their ids. Tokens that
// came from n-grams are told one by one.
void verify_text::commit(int64_t now, std::vector<verdict_msg> & out) {
    verify_stats & st = req_->stats;
    if (const auto us = us_since_verdict(now); us.has_value()) {
        st.overhead_us += *us - elsewhere_us_;
        st.n_after_hit += was_hit_ ? 1 : 0;
        (was_hit_ ? st.n_tokens_after_hit : st.n_tokens_after_miss) += n_new();
    }
    t_verdict_    = now;
    elsewhere_us_ = 0;
    ngrams_.add(tokens_);

    const size_t n_before = tokens_.size() - size_t(n_new());
    int32_t      i_node   = 0;
    size_t       n_known  = 0; // leading accepted rows that are nodes of the drafted tree
    while (n_known < accepted_.size() && tree_.at_row(accepted_[n_known]).i_node >= 0) {
        i_node = tree_.at_row(accepted_[n_known++]).i_node;
    }
    was_lost_ = false;
    for (size_t n = n_before + n_known + 1; n <= tokens_.size(); ++n, i_node = 0) {
        const node_id accepted = mirror_.name_of(i_node);
        was_lost_              = was_lost_ || mirror_.lacks(i_node, tokens_[n - 1]);
        was_hit_               = mirror_.commit(i_node, tokens_[n - 1], std::span(tokens_).first(n));
        out.push_back({.accepted = accepted, .token = tokens_[n - 1]});
    }
    proposals_.prune([this](node_id id) { return mirror_.tree().find(id) >= 0; });
    st.n_hits += was_hit_ ? 1 : 0;
}

void verify_text::count_busy(int64_t us) {
    req_->stats.busy_us += us;
    elsewhere_us_ += us;
}

void verify_text::count_wait(int64_t us) {
    req_->stats.wait_us += us;
    elsewhere_us_ += us;
}

} // namespace duo
