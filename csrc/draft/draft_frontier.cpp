#include "draft_frontier.h"

#include <algorithm>
#include <cmath>

namespace duo {

namespace {
constexpr float   least_path  = -5.5f;  // log of the chance below which a node is not worth a row (0.4%)
constexpr float   hopeless    = -60.0f; // the same for a node that a later block has dropped
constexpr int32_t n_tree_most = 768;    // nodes; the target looks through all of them
} // namespace

void draft_frontier::begin(const plan_params & plan) {
    shape_ = tree_shape(plan.tree);
    places_.assign(1, 0); // the root's place is known before the shape is looked at
    shape_only_ = plan.mode == run_mode::sync;
}

void draft_frontier::choose(std::vector<int32_t> & nodes, int32_t n_free) {
    nodes.clear();
    if (!cache_.readable() || orders_.n_ahead <= 0) {
        return;
    }
    cache_.close_gap();
    if (wants_root()) { // it comes first
        nodes.push_back(0);
    } else if (tree_.root().expanded() && !cache_.in_blocks()) {
        const auto n_most = size_t(std::clamp(n_free, 0, std::min(model_.facts().n_batch, model_.facts().n_branch)));
        choose_below_root(nodes, n_most, std::min(n_most, size_t(orders_.n_branch)));
    }
}

// A draft head evaluates it again as soon as the target's states are there.
bool draft_frontier::wants_root() const {
    const bool wanted = cache_.head() != nullptr ? cache_.n_readable() > 0 : !tree_.root().expanded();
    return wanted && cache_.row_of(0) < model_.facts().n_ctx;
}

// At most n_most nodes that a shape wants, or n_step others.
void draft_frontier::choose_below_root(std::vector<int32_t> & nodes, size_t n_most, size_t n_step) {
    if (!shape_.empty()) {
        shape_.match(tree_, places_);
        nodes.resize(n_most);
        nodes.resize(tree_.frontier(nodes, [this](int32_t i) {
            return places_[size_t(i)] >= 0 && shape_.n_children(places_[size_t(i)]) > 0 && fits(i);
        }));
        if (!nodes.empty() || shape_only_) {
            return;
        }
    }
    choose_by_worth(nodes, n_step);
}

// Best first by the chance that a node is needed. A further node is taken if it brings more for its price than the
// nodes before it do on average.
void draft_frontier::choose_by_worth(std::vector<int32_t> & nodes, size_t n_most) const {
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

int32_t draft_frontier::begin_block() {
    const int32_t n_wanted = std::max(orders_.n_ahead, shape_.depth());
    n_levels_              = std::clamp(n_wanted, 1,
                                        std::max(1, std::min(model_.facts().n_levels, model_.facts().n_ctx - cache_.pos_of(0))));
    return n_levels_;
}

bool draft_frontier::in_reach(int32_t i_node) const {
    return tree_.at(i_node).depth < n_levels_ && tree_.at(i_node).path > hopeless;
}

int32_t draft_frontier::next_in_block() {
    in_block_.clear();
    choose_below_root(in_block_, 1, 1);
    return in_block_.empty() ? -1 : in_block_.front();
}

// The best n_want nodes are known: so many are at least as probable as the best unexpanded node, and its children would
// be less probable still (EAGLE-2's choice, without its limit on depth).
bool draft_frontier::complete() const {
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
bool draft_frontier::fits(int32_t i_node) const {
    return cache_.row_of(i_node) < model_.facts().n_ctx &&
           (i_node == 0 ||
            (tree_.at(tree_.at(i_node).parent).expanded() && !model_.is_end(tree_.at(i_node).token) &&
             (cache_.in_blocks() ? in_reach(i_node) : cache_.trunk().can_take(tree_, i_node, cache_.pos_of(i_node)))));
}

// Any node may become the root, so it needs the children that a root needs, and those of its own place in the shape.
int32_t draft_frontier::n_children_wanted(int32_t i) const {
    const int32_t place = size_t(i) < places_.size() ? places_[size_t(i)] : -1;
    return shape_.empty() ? 0 : std::max(shape_.n_children(0), place < 0 ? 0 : shape_.n_children(place));
}

} // namespace duo
