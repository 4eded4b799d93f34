#include "text_guesses.h"

#include <algorithm>
#include <utility>

namespace duo {

void text_guesses::begin(const request & req, tokens text, const other_texts & others) {
    was_hit_ = false;
    mirror_.begin(req.id, text);
    proposals_.begin();
    ngrams_.begin(req.plan.ngram, text);
    shape_       = tree_shape(req.plan.tree);
    repeats_on_  = req.plan.ngram.kind != ngram_kind::none && req.plan.mode != run_mode::plain && shape_.empty();
    others_      = {.pool   = repeats_on_ && req.plan.ngram.kind == ngram_kind::mod ? others.pool : nullptr,
                    .lookup = repeats_on_ ? others.lookup : nullptr};
    ngram_right_ = true;
    find_repeats(text);
}

void text_guesses::find_repeats(tokens text) {
    n_repeats_ = repeats_on_ ? ngrams_.propose(text, {}, n_draft_cap, repeats_) : 0;
    if (propose_from_others(text, {}, n_draft_cap, n_repeats_ > 0 ? repeats_.data() : nullptr)) {
        std::swap(repeats_[0], from_others_);
        n_repeats_ = 1;
    }
}

// Where other texts match better than this one.
bool text_guesses::propose_from_others(tokens text, tokens tail, int32_t n_most, const ngram_proposal * own) {
    const bool any = propose_from_pool(text, tail, n_most, own);
    if (propose_from_lookup(text, tail, n_most, any ? &from_others_ : own)) {
        std::swap(from_others_, from_lookup_);
        return true;
    }
    return any;
}

// The caches know short n-grams only.
bool text_guesses::propose_from_lookup(tokens text, tokens tail, int32_t n_most, const ngram_proposal * own) {
    return others_.lookup != nullptr && (own == nullptr || own->n_match < int32_t(ngram_counts::n_longest)) &&
           others_.lookup->propose(text, tail, std::min(n_most, ngrams_.params().size_m), from_lookup_) &&
           (own == nullptr || from_lookup_.n_match > own->n_match);
}

// Where an earlier text matches better than this one. A match of this one's longest key may be longer than it says.
bool text_guesses::propose_from_pool(tokens text, tokens tail, int32_t n_most, const ngram_proposal * own) {
    const ngram_params & wanted = ngrams_.params();
    return others_.pool != nullptr && (own == nullptr || own->n_match < wanted.size_n) &&
           others_.pool->propose(text, tail, std::min(n_most, wanted.size_m), from_others_) &&
           from_others_.n_hits >= wanted.min_hits && (own == nullptr || from_others_.n_match > own->n_match);
}

std::span<const double> text_guesses::repeats(const guess_record & record) {
    chances_.clear();
    if (n_repeats_ == 0) {
        return chances_;
    }
    double chance = 1.0;
    for (size_t i = 0; i < repeats_[0].tokens.size(); ++i) {
        chance *= record.ngram_chance(repeats_[0].n_match, int32_t(i));
        chances_.push_back(chance);
    }
    return chances_;
}

mirror_tree::news text_guesses::on_node(const node_msg & msg, tokens text, guess_record & record) {
    const auto what = mirror_.insert(msg, text);
    if (what == mirror_tree::news::grown) {
        proposals_.on_draw(msg);
    }
    const bool right = what == mirror_tree::news::named_right;
    // A guess that came too late to be verified still counts as right or wrong.
    if (msg.guess && (right || what == mirror_tree::news::guess_wrong)) {
        record.on_child(msg.logp, right, msg.age);
        if (msg.rank == 0) {
            record.on_guess(0, right, true, msg.age);
        }
    }
    return what;
}

void text_guesses::on_share(const node_msg & msg) {
    if (mirror_.tree().find(msg.parent) >= 0) {
        proposals_.on_share(msg);
    }
}

void text_guesses::grow(tokens text, const guess_record & record, double least, int32_t n_room) {
    if (!shape_.empty()) {
        shape_.match(mirror_.tree(), places_);
        tree_.begin(mirror_.tree(), record, shape_, places_);
        return;
    }
    tree_.begin(mirror_.tree(), record, least);
    if (repeats_on_) {
        add_ngrams(text, record, least, std::min(n_room, n_draft_cap));
    }
}

void text_guesses::add_ngrams(tokens text, const guess_record & record, double least, int32_t n_most) {
    int32_t n_hits = 0;
    for (size_t i = 0; i < n_repeats_; ++i) {
        n_hits += repeats_[i].n_hits;
    }
    for (size_t i = 0; i < n_repeats_; ++i) {
        const double share = double(repeats_[i].n_hits) / std::max(1, n_hits);
        tree_.add_ngram(-1, repeats_[i], record, least, share);
    }
    // Also at the end of the best path: where the drafted path repeats a passage of the text, n-grams continue it.
    const auto & path = tree_.best_path();
    if (!path.empty() && int32_t(path.size()) < n_most) {
        tail_.clear();
        for (const int32_t i : path) {
            tail_.push_back(tree_.nodes()[size_t(i)].token);
        }
        if (propose_below(text, n_most - int32_t(path.size()))) {
            tree_.add_ngram(path.back(), proposal_below_, record, least);
        }
    }
}

// What follows the text and tail_.
bool text_guesses::propose_below(tokens text, int32_t n_most) {
    const bool any = ngrams_.propose(text, tail_, n_most, std::span(&proposal_below_, 1)) == 1;
    if (propose_from_others(text, tail_, n_most, any ? &proposal_below_ : nullptr)) {
        std::swap(proposal_below_, from_others_);
        return true;
    }
    return any;
}

int32_t text_guesses::age_of(int32_t i_row) const {
    const int32_t i_node = tree_.at_row(i_row).i_node;
    return i_node < 0 ? no_age : mirror_.tree().at(i_node).age;
}

guesses_below text_guesses::below(int32_t i_row, const sampling_params & sampling) {
    const int32_t i_node = i_row < 0 ? 0 : tree_.at_row(i_row).i_node;
    if (acceptance::draws(sampling)) {
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

void text_guesses::learn(int32_t i_row, int32_t level, token_id chosen, const sampling_params & sampling,
                         guess_record & record) {
    if (ngram_right_ && n_repeats_ > 0 && size_t(level) < repeats_[0].tokens.size()) {
        ngram_right_ = repeats_[0].tokens[size_t(level)] == chosen;
        record.on_ngram(repeats_[0].n_match, level, ngram_right_);
    }
    const int32_t i_node = i_row < 0 ? 0 : tree_.at_row(i_row).i_node;
    if (i_node < 0) {
        return; // an n-gram's token
    }
    const token_tree & tree = mirror_.tree();
    // Draws are tried in their order. Of a head's guesses the first one need not be the best any more.
    const bool    draws = acceptance::draws(sampling);
    const int32_t best  = draws ? tree.first_child(i_node) : tree.likeliest_child(i_node);
    int32_t       right = -1;
    said_.clear();
    for (int32_t i = tree.first_child(i_node); i >= 0; i = tree.at(i).next) {
        const auto & nd       = tree.at(i);
        const bool   is_right = nd.token == chosen;
        right                 = is_right ? int32_t(said_.size()) : right;
        said_.push_back(nd.logp);
        record.on_child(nd.logp, is_right, nd.age);
        if (i == best) {
            record.on_guess(level, is_right, !was_hit_, nd.age);
        }
    }
    record.on_choice(said_, right);
}

// The draft knows its own nodes by their ids. Tokens that came from n-grams are told one by one.
void text_guesses::commit(std::span<const int32_t> accepted, const std::vector<token_id> & text,
                          std::vector<verdict_msg> & out) {
    ngrams_.add(text);
    find_repeats(text);
    const size_t n_before = text.size() - accepted.size() - 1;
    int32_t      i_node   = 0;
    size_t       n_known  = 0; // leading accepted rows that are nodes of the drafted tree
    while (n_known < accepted.size() && tree_.at_row(accepted[n_known]).i_node >= 0) {
        i_node = tree_.at_row(accepted[n_known++]).i_node;
    }
    was_lost_ = false;
    for (size_t n = n_before + n_known + 1; n <= text.size(); ++n, i_node = 0) {
        const node_id name = mirror_.name_of(i_node);
        was_lost_          = was_lost_ || mirror_.lacks(i_node, text[n - 1]);
        was_hit_           = mirror_.commit(i_node, text[n - 1], std::span(text).first(n));
        out.push_back({.accepted = name, .token = text[n - 1]});
    }
    proposals_.prune([this](node_id id) { return mirror_.tree().find(id) >= 0; });
}

} // namespace duo
