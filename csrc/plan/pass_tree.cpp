#include "pass_tree.h"

#include <algorithm>

namespace duo {

namespace {
// The chance of a guess that alone would be right with `own`, where other guesses are right with `others`: at most one
// of them is.
double against(double own, double others) {
    const double alone = own * (1.0 - others);
    return alone / (alone + 1.0 - own);
}
} // namespace

void pass_tree::begin(const token_tree & tree, const guess_record & guesses, double least) {
    nodes_.clear();
    index_.assign(size_t(tree.size()), -2); // -2: left out, with all nodes below it
    index_[0] = -1;
    for (int32_t i = 1; i < tree.size(); ++i) {
        const auto &  nd       = tree.at(i);
        const int32_t i_parent = index_[size_t(nd.parent)];
        if (i_parent == -2) {
            continue;
        }
        const double chance = (i_parent < 0 ? 1.0 : nodes_[size_t(i_parent)].chance) * guesses.chance(nd.logp, nd.age);
        if (chance >= least) {
            index_[size_t(i)] = int32_t(nodes_.size());
            nodes_.push_back({.token  = nd.token,
                              .parent = i_parent,
                              .depth  = nd.depth,
                              .i_node = i,
                              .age    = nd.age,
                              .chance = chance});
        }
    }
}

void pass_tree::begin(const token_tree & tree, const guess_record & guesses, const tree_shape & shape,
                      std::span<const int32_t> places) {
    begin(tree, guesses, 0.0);
    // All nodes are there in the tree's order, so the place of nodes_[i] is places[i + 1].
    size_t n = 0;
    for (size_t i = 0; i < nodes_.size(); ++i) {
        index_[i + 1] = -2;
        if (places[i + 1] >= 0) {
            node nd       = nodes_[i];
            nd.parent     = nd.parent < 0 ? -1 : index_[size_t(nd.parent) + 1];
            index_[i + 1] = int32_t(n);
            nodes_[n++]   = nd;
        }
    }
    nodes_.resize(n);
    n_open_ = 0;
    for (int32_t i = 0; i < tree.size(); ++i) {
        const int32_t place = places[size_t(i)];
        n_open_ += place >= 0 && shape.n_children(place) > 0 && tree.first_child(i) < 0 ? 1 : 0;
    }
}

int32_t pass_tree::child(int32_t i_node, token_id token) const {
    for (size_t i = size_t(i_node + 1); i < nodes_.size(); ++i) {
        if (nodes_[i].parent == i_node && nodes_[i].token == token) {
            return int32_t(i);
        }
    }
    return -1;
}

// Chance that one of the draft's guesses there is right, if the text goes through the node.
double pass_tree::drafted_below(int32_t i_node) const {
    const double above = i_node < 0 ? 1.0 : nodes_[size_t(i_node)].chance;
    double       sum   = 0.0;
    for (size_t i = size_t(i_node + 1); i < nodes_.size(); ++i) {
        sum += nodes_[i].parent == i_node && nodes_[i].i_node >= 0 ? nodes_[i].chance : 0.0;
    }
    return std::min(sum / above, 0.999);
}

// What comes after it is as likely as before if the text goes through it.
void pass_tree::raise(int32_t i_node, double factor) {
    if (factor <= 1.0) {
        return;
    }
    below_.assign(nodes_.size(), false);
    for (auto i = size_t(i_node); i < nodes_.size(); ++i) {
        const int32_t up = nodes_[i].parent;
        below_[i]        = i == size_t(i_node) || (up >= 0 && below_[size_t(up)]);
        nodes_[i].chance *= below_[i] ? factor : 1.0;
    }
}

int32_t pass_tree::add_ngram(int32_t i_from, const ngram_proposal & proposal, const guess_record & guesses,
                             double least, double share) {
    const auto & tokens = proposal.tokens;
    int32_t      at     = i_from;
    for (size_t i = 0; i < tokens.size(); ++i) {
        const double  parent_chance = at < 0 ? 1.0 : nodes_[size_t(at)].chance;
        const int32_t existing      = child(at, tokens[i]);
        double        own           = guesses.ngram_chance(proposal.n_match, int32_t(i)) * (i == 0 ? share : 1.0);
        if (existing < 0 || nodes_[size_t(existing)].i_node < 0) {
            own = against(own, drafted_below(at));
        }
        const double chance = parent_chance * own;
        if (existing >= 0) { // draft and n-gram propose the same token: the higher chance counts
            raise(existing, chance / nodes_[size_t(existing)].chance);
            at = existing;
            continue;
        }
        if (chance < least) {
            break;
        }
        nodes_.push_back({.token  = tokens[i],
                          .parent = at,
                          .depth  = at < 0 ? 1 : nodes_[size_t(at)].depth + 1,
                          .i_node = -1,
                          .chance = chance});
        at = int32_t(nodes_.size()) - 1;
    }
    return at;
}

const std::vector<int32_t> & pass_tree::by_chance() {
    by_chance_.resize(nodes_.size());
    for (size_t i = 0; i < nodes_.size(); ++i) {
        by_chance_[i] = int32_t(i);
    }
    // Equal chances are ordered by index, so that a parent never comes after its child.
    std::sort(by_chance_.begin(), by_chance_.end(), [this](int32_t a, int32_t b) {
        const double x = nodes_[size_t(a)].chance;
        const double y = nodes_[size_t(b)].chance;
        return x > y || (x == y && a < b);
    });
    return by_chance_;
}

const std::vector<int32_t> & pass_tree::best_path() {
    best_path_.clear();
    on_path_.assign(nodes_.size(), false);
    for (int32_t at = -1;;) {
        int32_t best = -1;
        for (int32_t i = at + 1; i < int32_t(nodes_.size()); ++i) {
            if (nodes_[size_t(i)].parent == at &&
                (best < 0 || nodes_[size_t(i)].chance > nodes_[size_t(best)].chance)) {
                best = i;
            }
        }
        if (best < 0) {
            return best_path_;
        }
        best_path_.push_back(best);
        on_path_[size_t(best)] = true;
        at                     = best;
    }
}

void pass_tree::choose(const std::vector<int32_t> & order, size_t n, int32_t n_branch) {
    picked_.assign(order.begin(), order.begin() + std::ptrdiff_t(std::min(n, order.size())));
    rows_.clear();
    n_branches_ = 1;
    descend(-1, n_branch);
}

// The picked children of a row, best first; each new leaf but the first one takes a branch.
void pass_tree::descend(int32_t i_row, int32_t n_branch) {
    const int32_t i_node = i_row < 0 ? -1 : rows_[size_t(i_row)].i_node;
    bool          first  = true;
    for (const int32_t i : picked_) { // in order of chance
        if (nodes_[size_t(i)].parent != i_node) {
            continue;
        }
        if (!first && n_branches_ == n_branch) {
            return;
        }
        n_branches_ += first ? 0 : 1;
        const auto row    = int32_t(rows_.size());
        const auto branch = n_branches_ - 1;
        rows_.push_back({.i_node = i, .parent = i_row, .branch = branch});
        descend(row, n_branch);
        rows_[size_t(row)].n_branches = n_branches_ - branch;
        first                         = false;
    }
}

bool pass_tree::has_child_row(int32_t i_row) const {
    return std::any_of(rows_.begin(), rows_.end(), [i_row](const chosen & r) { return r.parent == i_row; });
}

int32_t pass_tree::depth() const {
    int32_t n = 0;
    for (const chosen & r : rows_) {
        n = std::max(n, nodes_[size_t(r.i_node)].depth);
    }
    return n;
}

int32_t pass_tree::drafted_depth() const {
    int32_t n = 0;
    for (const node & nd : nodes_) {
        n = nd.i_node < 0 ? n : std::max(n, nd.depth);
    }
    return n;
}

double pass_tree::expected() const {
    double sum = 1.0;
    for (const chosen & r : rows_) {
        sum += nodes_[size_t(r.i_node)].chance;
    }
    return sum;
}

int32_t pass_tree::child_row(int32_t i_row, token_id token) const {
    for (size_t i = size_t(i_row + 1); i < rows_.size(); ++i) {
        if (rows_[i].parent == i_row && at_row(int32_t(i)).token == token) {
            return int32_t(i);
        }
    }
    return -1;
}

} // namespace duo
