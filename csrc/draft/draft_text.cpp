#include "draft_text.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "tree/sharpness.h"

namespace duo {

namespace {
constexpr float   least_path  = -5.5f;  // log of the chance below which a node is not worth a row (0.4%)
constexpr float   hopeless    = -60.0f; // the same for a node that a later block has dropped
constexpr int32_t n_tree_most = 768;    // nodes; the target looks through all of them
// Steps by which a head's own states may lag behind the target's before they are made anew. Each adds some error, and
// heads are trained for five to seven.
constexpr int32_t n_lag_most = 4;
// Rows of a draft head that are made without the target's states, where these were left out. Such rows know their
// tokens, which is worth most of what the states are (benchmarks/README.md); those of a head of blocks do not.
constexpr int32_t n_bridge       = 64;
constexpr int32_t n_bridge_block = 4;
} // namespace

bool draft_text::begin(const request & req, node_counter & ids, node_msg & named) {
    req_   = &req;
    shape_ = tree_shape(req.plan.tree);
    if (head_) {
        head_->begin(tokens_, req.prompt);
    }
    trunk_.begin(tokens_, req.prompt, req.plan.n_window);
    if (head_ && trunk_.n_text() == 0) {
        trunk_.restart(1);
    }
    tokens_.assign(req.prompt.begin(), req.prompt.end() - 1);
    readable_ = std::all_of(tokens_.begin(), tokens_.end(), [this](token_id t) { return t < model_.n_vocab(); });
    tree_.reset(req.id, no_token);
    places_.assign(1, 0); // the root's place is known before the shape is looked at
    return commit(req.prompt.back(), ids, named);
}

void draft_text::take_orders(const verdict_msg & v) {
    const float nothing = -std::numeric_limits<float>::infinity();
    orders_             = {.n_ahead      = v.n_ahead,
                           .n_branch     = std::min(int32_t(v.n_branch), model_.n_branch()),
                           .n_want       = v.n_want,
                           .n_threads    = v.n_threads,
                           .least_path   = v.least_path > 0 ? std::log(float(v.least_path) * 1e-3f) : nothing,
                           .branch_price = float(v.branch_price) * 1e-3f,
                           .power        = sharpness::power_of(v.sharpness)};
    paused_             = false;
}

bool draft_text::apply(const verdict_msg & v, node_counter & ids, node_msg & named) {
    const int32_t i = v.accepted == no_node ? 0 : tree_.find(v.accepted);
    if (i < 0) {
        throw error(error_kind::peer_lost,
                    "the draft lost step with the target: a verdict names a node that was never sent");
    }
    trunk_.re_root(tree_, i, pos_of(i));
    tree_.path_to(i, tokens_);
    tree_.re_root(i);
    return commit(v.token, ids, named);
}

// The token after the root became certain.
bool draft_text::commit(token_id token, node_counter & ids, node_msg & named) {
    const int32_t i = tree_.child(0, token);
    trunk_.re_root(tree_, std::max(i, 0), pos_of(std::max(i, 0)));
    tokens_.push_back(token);
    readable_ = readable_ && token < model_.n_vocab();
    if (i >= 0) {
        tree_.re_root(i);
    } else {
        const node_id up = tree_.root().id;
        named            = {.guess = false, .slot = slot_, .id = ids.next(), .parent = up, .token = token};
        tree_.reset(named.id, token);
    }
    trunk_.prune(tree_);
    if (head_) {
        head_->prune(tree_);
    }
    return i < 0;
}

void draft_text::take_features(int32_t pos, token_id token, std::span<const float> features) {
    head_->take(pos, token, features);
    paused_ = false;
}

void draft_text::keep_state(int32_t i, std::span<const float> state) {
    const int32_t age = i == 0 ? 0 : head_->age_of(tree_.at(tree_.at(i).parent).id) + 1;
    head_->keep(tree_.at(i).id, state, age);
}

int16_t draft_text::age_below(int32_t i) const {
    return head_ && !in_blocks() ? int16_t(std::min(head_->age_of(tree_.at(i).id), n_draft_cap)) : no_age;
}

// What was guessed below the root stays. If the states there are too old, it is evaluated again, from the new root.
void draft_text::on_true_rows(int32_t n) {
    trunk_.grow(n);
    head_->drop_before(trunk_.n_text());
    if (n_missing() > 0) {
        return;
    }
    if (in_blocks() || is_stale()) {
        tree_.forget_rows();
    }
    tree_.mark_expanded(0, trunk_.branch());
    trunk_.prune(tree_);
    head_->prune(tree_);
}

bool draft_text::is_stale() const {
    for (int32_t i = 1; i < tree_.size(); ++i) {
        if (tree_.at(i).expanded() && head_->age_of(tree_.at(i).id) - tree_.at(i).depth > n_lag_most) {
            return true;
        }
    }
    return false;
}

void draft_text::end() {
    if (req_ != nullptr) {
        req_->draft_done.store(true, std::memory_order_release);
        req_ = nullptr;
    }
}

std::vector<token_id> draft_text::cached() const {
    std::vector<token_id> all;
    for (int32_t row = 0; row < trunk_.n_rows() && trunk_.window().pos_of(row) < int32_t(tokens_.size()); ++row) {
        all.push_back(tokens_[size_t(trunk_.window().pos_of(row))]);
    }
    return all;
}

void draft_text::drop_tree() {
    tree_.reset(no_node, no_token);
    trunk_.keep_text();
}

void draft_text::choose(std::vector<int32_t> & nodes, int32_t n_free) {
    nodes.clear();
    if (!readable_ || orders_.n_ahead <= 0) {
        return;
    }
    choose_root(nodes);
    if (!nodes.empty() || !tree_.root().expanded() || in_blocks()) {
        return;
    }
    const auto n_most = size_t(std::clamp(n_free, 0, std::min(model_.n_batch(), model_.n_branch())));
    choose_below_root(nodes, n_most, std::min(n_most, size_t(orders_.n_branch)));
}

// At most n_most nodes that a shape wants, or n_step others.
void draft_text::choose_below_root(std::vector<int32_t> & nodes, size_t n_most, size_t n_step) {
    if (!shape_.empty()) {
        shape_.match(tree_, places_);
        nodes.resize(n_most);
        nodes.resize(tree_.frontier(nodes, [this](int32_t i) {
            return places_[size_t(i)] >= 0 && shape_.n_children(places_[size_t(i)]) > 0 && fits(i);
        }));
        if (!nodes.empty() || req_->plan.mode == run_mode::sync) {
            return;
        }
    }
    choose_by_worth(nodes, n_step);
}

// The root comes first. A draft head evaluates it again as soon as the target's states are there.
void draft_text::choose_root(std::vector<int32_t> & nodes) {
    if (head_ && n_missing() > 0) {
        const int32_t from = head_->first_ready(trunk_.n_text());
        if (from > trunk_.n_text() && from < int32_t(tokens_.size())) {
            if (from - trunk_.n_text() > (in_blocks() ? n_bridge_block : n_bridge)) {
                trunk_.restart(in_blocks() ? from : from - n_bridge); // what was before is too far away
            }
            head_->bridge(trunk_.n_text());
        }
    }
    const bool wanted = head_ ? n_readable() > 0 : !tree_.root().expanded();
    if (wanted && row_of(0) < model_.n_ctx()) {
        nodes.push_back(0);
    }
}

// Best first by the chance that a node is needed. A further node is taken if it brings more for its price than the
// nodes before it do on average.
void draft_text::choose_by_worth(std::vector<int32_t> & nodes, size_t n_most) const {
    if (tree_.size() >= n_tree_most || complete()) {
        return;
    }
    nodes.resize(n_most);
    nodes.resize(tree_.frontier(nodes, [this](int32_t i) {
        const float path = tree_.at(i).path;
        return tree_.at(i).depth < orders_.n_ahead && (orders_.n_branch == 1 || path >= least_path) &&
               path >= orders_.least_path && fits(i);
    }));
    double worth = 0.0;
    double price = 1.0;
    for (size_t j = 0; j < nodes.size(); ++j) {
        const double more = std::exp(double(tree_.at(nodes[j]).path));
        if (j > 0) {
            if (more * price < worth * double(orders_.branch_price)) {
                nodes.resize(j);
                break;
            }
            price += double(orders_.branch_price);
        }
        worth += more;
    }
}

int32_t draft_text::begin_block() {
    const int32_t n_wanted = std::max(orders_.n_ahead, shape_.depth());
    n_levels_ = std::clamp(n_wanted, 1, std::max(1, std::min(model_.n_levels(), model_.n_ctx() - pos_of(0))));
    return n_levels_;
}

bool draft_text::in_reach(int32_t i_node) const {
    return tree_.at(i_node).depth < n_levels_ && tree_.at(i_node).path > hopeless;
}

void draft_text::choose_in_block(std::vector<int32_t> & nodes) {
    nodes.clear();
    choose_below_root(nodes, 1, 1);
}

// The best n_want nodes are known: so many are at least as probable as the best unexpanded node, and its children would
// be less probable still (EAGLE-2's choice, without its limit on depth).
bool draft_text::complete() const {
    if (orders_.n_want <= 0) {
        return false;
    }
    float best = least_path;
    for (int32_t i = 1; i < tree_.size(); ++i) {
        best = tree_.at(i).expanded() || !fits(i) ? best : std::max(best, tree_.at(i).path);
    }
    int32_t n = 0;
    for (int32_t i = 1; i < tree_.size(); ++i) {
        n += tree_.at(i).path >= best ? 1 : 0;
    }
    return n >= orders_.n_want;
}

// The node can be evaluated, the target can read what would follow it, and there is a branch for it.
bool draft_text::fits(int32_t i_node) const {
    return row_of(i_node) < model_.n_ctx() &&
           (i_node == 0 || (tree_.at(tree_.at(i_node).parent).expanded() && !model_.is_end(tree_.at(i_node).token) &&
                            (in_blocks() ? in_reach(i_node) : trunk_.can_take(tree_, i_node, pos_of(i_node)))));
}

int32_t draft_text::n_expanded() const {
    int32_t n = 0;
    for (int32_t i = 1; i < tree_.size(); ++i) {
        n += tree_.at(i).expanded() ? 1 : 0;
    }
    return n;
}

// Any node may become the root, so it needs the children that a root needs, and those of its own place in the shape.
int32_t draft_text::n_children_wanted(int32_t i) const {
    const int32_t place = size_t(i) < places_.size() ? places_[size_t(i)] : -1;
    return shape_.empty() ? 0 : std::max(shape_.n_children(0), place < 0 ? 0 : shape_.n_children(place));
}

} // namespace duo
