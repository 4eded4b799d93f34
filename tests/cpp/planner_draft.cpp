#include "planner_draft.h"

namespace duo_test {

double slower(double n_cores, double parallel, int32_t n_threads) {
    return n_threads > 0 ? 1.0 + parallel * (n_cores / n_threads - 1.0) : 1.0;
}

void made_up_draft::take_orders(const text_planner & pl) {
    const draft_wishes o = pl.orders();
    n_ahead_             = o.n_ahead;
    n_wide_              = o.n_branch;
    n_want_              = o.n_want;
    told_price_          = 1e-3 * o.branch_price;
    least_path_ = o.least_path > 0 ? std::log(1e-3f * float(o.least_path)) : -std::numeric_limits<float>::infinity();
    n_threads_  = o.n_threads;
    shape_      = pl.shape().empty() ? nullptr : &pl.shape();
}

void made_up_draft::reset(int32_t n) {
    tree.reset(++n_ids_, 1);
    batch.clear();
    for (int32_t i = 0; i < n; ++i) {
        tree.insert(n_ids_ + 1, n_ids_, 1, float(best_logp));
        ++n_ids_;
    }
}

void made_up_draft::choose() {
    if (!batch.empty() || n_ahead_ <= 0) {
        return;
    }
    std::vector<int32_t> best{0};
    const bool           again = of_head && root_age_ != 0;
    if (tree.root().expanded() && n_levels > 1) {
        return;
    }
    if (tree.root().expanded() && !again) {
        const bool no_more = shape_ == nullptr && (tree.size() >= 512 || complete());
        best.resize(no_more ? 0 : shape_ != nullptr ? 16 : size_t(n_wide_));
        if (shape_ != nullptr) {
            shape_->match(tree, places_);
        }
        best.resize(tree.frontier(best, [this](int32_t i) {
            return shape_ != nullptr ? places_[size_t(i)] >= 0 && shape_->n_children(places_[size_t(i)]) > 0
                                     : tree.at(i).depth < n_ahead_ && tree.at(i).path >= least_path_ &&
                                           (n_wide_ == 1 || tree.at(i).path >= -5.5f);
        }));
    }
    double worth = 0.0;
    double cost  = 1.0;
    for (const int32_t i : best) {
        const double more = std::exp(double(tree.at(i).path));
        if (!batch.empty() && shape_ == nullptr) {
            if (more * cost < worth * told_price_) {
                break;
            }
            cost += told_price_;
        }
        worth += more;
        batch.push_back(tree.at(i).id);
    }
    left = step_us * slower(n_cores, parallel, n_threads_) * (1.0 + price * (double(batch.size()) - 1.0));
    took = beside = 0.0;
}

void made_up_draft::finish_step(pair_profile & profile) {
    for (const node_id id : batch) {
        const int32_t i = tree.find(id);
        if (id == late_id) {
            profile.guesses(guess_kind::noise).on_child(late_logp, late_token == 1);
            profile.guesses(guess_kind::noise).on_guess(0, late_token == 1, true);
        }
        if (i >= 0) {
            expand(i);
        }
    }
    std::vector<int32_t> next(1);
    for (int32_t n = 0; n_levels > 1 && n < 48; ++n) {
        const auto in_block = [this](int32_t i) { return tree.at(i).depth < std::min(n_levels, n_ahead_); };
        if (tree.frontier(next, in_block) == 0) {
            break;
        }
        expand(next.front());
    }
    profile.on_step(int32_t(batch.size()), float(took), n_threads_ > 0 ? 1.0 : beside / std::max(1.0, took));
    batch.clear();
}

bool made_up_draft::commit(int32_t i_node, token_id token) {
    const int32_t i_next = tree.child(i_node, token);
    // A draft that is passes behind finishes the step for the oldest of them.
    if (std::find(batch.begin(), batch.end(), late_id) == batch.end()) {
        late_id    = tree.at(i_node).id;
        late_token = token;
        late_logp  = guess_after(i_node).logp[0];
    }
    n_committed += size_t(tree.at(i_node).depth) + 1;
    if (i_next >= 0 && n_levels == 1) {
        root_age_ = tree.at(i_next).age + 1;
        tree.re_root(i_next);
    } else {
        root_age_ = 0;
        tree.reset(++n_ids_, token);
    }
    return i_next >= 0;
}

void made_up_draft::expand(int32_t i) {
    const node_id id        = tree.at(i).id;
    const int16_t age       = int16_t(!of_head ? no_age : i == 0 ? 0 : tree.at(i).age + 1);
    root_age_               = i == 0 ? 0 : root_age_;
    const traced_guess said = guess_after(i);
    guess(i, id, 1, said.logp[0], age);
    if (has_other && (n_wide_ > 1 || shape_ != nullptr)) {
        guess(i, id, 2, said.logp[1], age);
    }
    if (of_head && i == 0 && is_stale()) {
        tree.forget_rows();
    }
    tree.mark_expanded(i, 0);
}

void made_up_draft::guess(int32_t i, node_id id, token_id token, float logp, int16_t age) {
    if (const int32_t there = tree.child(i, token); there >= 0) {
        tree.revise(there, logp, age);
    } else {
        tree.insert(++n_ids_, id, token, logp, age);
    }
}

bool made_up_draft::is_stale() const {
    for (int32_t i = 1; i < tree.size(); ++i) {
        if (tree.at(i).expanded() && tree.at(i).age + 1 - tree.at(i).depth > 4) {
            return true;
        }
    }
    return false;
}

bool made_up_draft::complete() const {
    float   best = -5.5f;
    int32_t n    = 0;
    for (int32_t i = 1; i < tree.size(); ++i) {
        best = tree.at(i).expanded() ? best : std::max(best, tree.at(i).path);
    }
    for (int32_t i = 1; i < tree.size(); ++i) {
        n += tree.at(i).path >= best ? 1 : 0;
    }
    return n_want_ > 0 && n >= n_want_;
}

} // namespace duo_test
