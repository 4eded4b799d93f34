// One step of the draft: choose the frontier nodes most likely to be needed, evaluate them in one batch, send their
// best children. The loop around it is in draft_worker.cpp.
#include <algorithm>
#include <cmath>

#include "draft_worker.h"

namespace duo {

namespace {
constexpr size_t  n_children_most = 8;      // of a node, when several outcomes are prepared
constexpr float   least_path      = -5.5f;  // log of the chance below which a node is not worth a row (0.4%)
constexpr float   least_child     = -4.2f;  // the same for a child of a node that is right (1.5%)
constexpr int32_t n_tree_most     = 768;    // nodes; the target looks through all of them
constexpr float   log_of_nothing  = -69.0f; // log(1e-30)
} // namespace

void draft_worker::step() {
    choose();
    if (batch_.empty()) {
        pause();
        return;
    }
    step_time t{.t0 = now_us()};
    t.busy0 = wires_.verify_busy.at(t.t0);
    wires_.draft_busy.begin(t.t0);
    bool ready = false;
    try {
        ready = evaluate();
    } catch (...) {
        wires_.draft_busy.end(now_us());
        throw;
    }
    if (!ready && batch_.empty()) {
        wires_.draft_busy.end(now_us());
        pause(); // no branch is free
        return;
    }
    int32_t n_made = 0;
    int32_t depth  = 0;
    if (ready) {
        const auto n       = int32_t(batch_.size());
        const auto i_first = int32_t(rows_.size()) - n;
        t.t_rows           = now_us();
        // With a part of the cores it is no step by itself, whatever the target did.
        t.beside_us = n_threads_ > 0 ? t.t_rows - t.t0 : wires_.verify_busy.at(t.t_rows) - t.busy0;
        path_.assign(text_.begin(), text_.end());
        for (int32_t j = 0; j < n; ++j) {
            depth = std::max(depth, tree_.at(batch_[size_t(j)]).depth + 1);
            n_made += send_children(batch_[size_t(j)], i_first + j, j == 0 && typical_ ? &t : nullptr);
        }
    }
    wires_.nodes.wake(); // once for all of a step
    const int64_t t1 = now_us();
    wires_.draft_busy.end(t1);
    report(t.t0, t1, wires_.verify_busy.at(t1) - t.busy0, n_made, depth);
}

// What to expand: the root if its children are not known, else what the shape wants, else by worth.
void draft_worker::choose() {
    batch_.clear();
    if (!readable_ || n_ahead_ <= 0) {
        return;
    }
    if (!tree_.root().expanded()) {
        if (pos_of(0) < model_.n_ctx()) {
            batch_.push_back(0);
        }
        return;
    }
    const int32_t n_free = model_.n_cells() - cache_.n_text() - n_expanded();
    const int32_t n_most = std::clamp(n_free, 0, std::min(model_.n_batch(), model_.n_branch()));
    if (!shape_.empty()) {
        shape_.match(tree_, places_);
        batch_.resize(size_t(n_most));
        batch_.resize(tree_.frontier(batch_, [this](int32_t i) {
            return places_[size_t(i)] >= 0 && shape_.n_children(places_[size_t(i)]) > 0 && fits(i);
        }));
        if (!batch_.empty() || req_->plan.mode == run_mode::sync) {
            return;
        }
    }
    choose_by_worth(size_t(std::min(n_most, n_branch_)));
}

// Best first by the chance that a node is needed, as many as raise the chance bought per time: the j-th is worth its
// price if it brings more for it than the ones before it do on average.
void draft_worker::choose_by_worth(size_t n_most) {
    if (tree_.size() >= n_tree_most || complete()) {
        return;
    }
    batch_.resize(n_most);
    batch_.resize(tree_.frontier(batch_, [this](int32_t i) {
        const float path = tree_.at(i).path;
        return tree_.at(i).depth < n_ahead_ && (n_branch_ == 1 || path >= least_path) && path >= least_path_ && fits(i);
    }));
    double worth = 0.0;
    double price = 1.0;
    for (size_t j = 0; j < batch_.size(); ++j) {
        const double more = std::exp(double(tree_.at(batch_[j]).path));
        if (j > 0) {
            if (more * price < worth * double(branch_price_)) {
                batch_.resize(j);
                break;
            }
            price += double(branch_price_);
        }
        worth += more;
    }
}

// The best n_want_ nodes are known: so many are at least as probable as the best node that is not expanded, and what
// would hang below that one is less probable still (EAGLE-2's choice, without its limit on depth).
bool draft_worker::complete() const {
    if (n_want_ <= 0) {
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
    return n >= n_want_;
}

// The node can be evaluated, the target can read what would follow it, and there is a branch for it.
bool draft_worker::fits(int32_t i_node) const {
    return pos_of(i_node) < model_.n_ctx() &&
           (i_node == 0 || (!model_.is_end(tree_.at(i_node).token) && cache_.can_take(tree_, i_node, pos_of(i_node))));
}

int32_t draft_worker::n_expanded() const {
    int32_t n = 0;
    for (int32_t i = 1; i < tree_.size(); ++i) {
        n += tree_.at(i).expanded() ? 1 : 0;
    }
    return n;
}

// One batch: what is missing of the text and the root, or the nodes of batch_. True: their rows are the last of rows_;
// false: a long text has more batches to go, or the request ends.
bool draft_worker::evaluate() {
    rows_.clear();
    branches_.clear();
    if (batch_.front() == 0) {
        const auto n_missing = int32_t(text_.size()) - cache_.n_text();
        const auto n         = std::min(n_missing, model_.n_batch());
        for (int32_t i = 0; i < n; ++i) {
            const int32_t pos = cache_.n_text() + i;
            rows_.push_back({.token  = text_[size_t(pos)],
                             .pos    = pos,
                             .branch = cache_.trunk(),
                             .output = pos + 1 == int32_t(text_.size())});
        }
        if (model_.decode(rows_, req_->cancelled) == decode_status::stopped) {
            return false;
        }
        cache_.grow_text(n);
        typical_ = n <= 2;
        if (n < n_missing) {
            return false;
        }
        tree_.mark_expanded(0, cache_.trunk());
        return true;
    }
    size_t n_kept = 0;
    for (const int32_t i : batch_) {
        const int32_t b = cache_.take(tree_, i, pos_of(i));
        if (b >= 0) {
            rows_.push_back({.token = tree_.at(i).token, .pos = pos_of(i), .branch = b, .output = true});
            branches_.push_back(b);
            batch_[n_kept++] = i;
        }
    }
    batch_.resize(n_kept);
    if (batch_.empty()) {
        return false;
    }
    if (model_.decode(rows_, req_->cancelled) == decode_status::stopped) {
        for (const row & r : rows_) {
            cache_.give_back(r.branch, r.pos);
        }
        return false;
    }
    for (size_t j = 0; j < n_kept; ++j) {
        tree_.mark_expanded(batch_[j], branches_[j]);
    }
    typical_ = true;
    return true;
}

// Children of a node whose row was evaluated: best first, the first one always. The others are kept by their own
// chance, not by the path's: when the text has come to this node, that is what counts, and they cannot be had again. t:
// the step's duration is told, which is that of the rows and as often this choice as there are nodes; null: it is not.
int32_t draft_worker::send_children(int32_t i_node, int32_t i_row, const step_time * t) {
    // Any node may become the root: it has what a root needs, and what its own place in the shape does.
    const int32_t place = size_t(i_node) < places_.size() ? places_[size_t(i_node)] : -1;
    const int32_t wanted =
        shape_.empty() ? 0 : std::max(shape_.n_children(0), place < 0 ? 0 : shape_.n_children(place));
    path_.resize(text_.size());
    tree_.path_to(i_node, path_);
    children_.resize(std::max(n_branch_ > 1 ? n_children_most : 1, size_t(wanted)));
    children_.resize(size_t(model_.candidates(i_row, req_->sampling, path_, children_)));

    const auto             n      = int64_t(batch_.size());
    const int64_t          rows   = t == nullptr ? 0 : t->t_rows - t->t0;
    const auto             us     = t == nullptr ? 0.0f : float(rows + (now_us() - t->t_rows) * n);
    const auto             beside = rows <= 0 ? 0.0f : float(t->beside_us) / float(rows);
    const token_tree::node up     = tree_.at(i_node);
    const float            p_min  = std::log(std::max(req_->plan.p_min, 1e-30f));
    int32_t                n_made = 0;
    for (const candidate & c : children_) {
        const float logp = std::max(c.logp, log_of_nothing);
        if (logp < p_min || (n_made > 0 && n_made >= wanted && logp < least_child)) {
            break;
        }
        tree_.insert(++n_ids_, up.id, c.token, logp);
        wires_.nodes.push_quiet({.slot    = req_->slot,
                                 .id      = n_ids_,
                                 .parent  = up.id,
                                 .token   = c.token,
                                 .logp    = logp,
                                 .rank    = int16_t(n_made),
                                 .n_rows  = int16_t(n),
                                 .step_us = n_made == 0 ? us : 0.0f,
                                 .beside  = beside});
        ++n_made;
    }
    return n_made;
}

void draft_worker::report(int64_t t0, int64_t t1, int64_t hidden_us, int32_t n_made, int32_t depth) {
    if (wires_.tracing) {
        wires_.draft_trace.try_push({.what      = typical_ ? trace_event::kind::draft : trace_event::kind::prompt,
                                     .slot      = req_->slot,
                                     .n_rows    = int32_t(rows_.size()),
                                     .n_drafted = n_made,
                                     .depth     = depth,
                                     .t0_us     = t0,
                                     .t1_us     = t1});
    }
    req_->draft->count(1, n_made, t1 - t0, hidden_us);
}

} // namespace duo
