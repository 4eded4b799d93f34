// Which nodes of which texts a step of the draft evaluates: those most likely to be needed.
#include <algorithm>
#include <cmath>

#include "draft_worker.h"

namespace duo {

// Fills parts_. False: there is nothing to do.
bool draft_worker::choose() {
    int32_t n_free = model_.n_cells();
    for (const draft_text & t : texts_) {
        n_free -= t.n_cached();
    }
    n_parts_ = 0;
    for (draft_text & t : texts_) {
        if (!wants_step(t)) {
            continue;
        }
        if (t.in_blocks() && n_parts_ > 0 && int32_t(n_parts_ + 1) * (model_.n_levels() + 1) > model_.n_batch()) {
            break; // the others have the next step
        }
        if (n_parts_ == parts_.size()) {
            parts_.emplace_back();
        }
        part & p = parts_[n_parts_];
        p.text   = &t;
        p.branches.clear();
        p.n_rows    = 0;
        p.n_made    = 0;
        p.evaluated = false;
        t.choose(p.nodes, n_free);
        if (p.nodes.empty()) {
            pause(t);
            continue;
        }
        const int32_t n_block = t.in_blocks() ? model_.n_levels() + 1 : 0;
        const int32_t n_rows  = p.reads() ? t.n_missing() + n_block : int32_t(p.nodes.size());
        if (n_rows > n_free) {
            n_free = make_room(t, n_free);
        }
        if (n_rows > n_free && (n_parts_ > 0 || shares_cache(t))) {
            pause(t); // until the next verdict: the others may have ended by then
            continue;
        }
        if (n_rows > n_free) { // it has the cache for itself
            fail(t, "its cache is full; raise -cd/--ctx-size-draft");
            continue;
        }
        n_free -= n_rows;
        ++n_parts_;
    }
    if (n_parts_ > 1) {
        keep_what_pays();
    }
    return n_parts_ > 0;
}

// Whether other texts that are written hold a part of the cache.
bool draft_worker::shares_cache(const draft_text & text) const {
    return std::any_of(texts_.begin(), texts_.end(),
                       [&text](const draft_text & t) { return &t != &text && t.active() && t.n_cached() > 0; });
}

// Forgets what the cache holds of texts that have ended. Returns how many rows are free then.
int32_t draft_worker::make_room(const draft_text & text, int32_t n_free) {
    for (draft_text & t : texts_) {
        if (&t != &text && !t.active() && t.n_cached() > 0) {
            n_free += t.n_cached();
            t.clear_cache();
        }
    }
    return n_free;
}

// Of the nodes of several texts, those stay that bring more for their price than the better ones do on average. A root
// stays: nothing is known below it.
void draft_worker::keep_what_pays() {
    std::vector<std::pair<double, size_t>> worths; // and the part
    double                                 worth = 0.0;
    double                                 price = 0.0;
    for (size_t i = 0; i < n_parts_; ++i) {
        const part & p = parts_[i];
        if (p.reads()) {
            worth += 1.0;
            price += price == 0.0 ? 1.0 : double(p.text->wanted().branch_price);
            continue;
        }
        for (const int32_t node : p.nodes) { // best first
            worths.emplace_back(std::exp(double(p.text->tree().at(node).path)), i);
        }
    }
    std::stable_sort(worths.begin(), worths.end(), [](const auto & a, const auto & b) { return a.first > b.first; });
    std::vector<size_t> n_kept(n_parts_, 0);
    size_t              n_rows = 0;
    for (const auto & [more, i] : worths) {
        const double cost = double(parts_[i].text->wanted().branch_price);
        if ((price > 0.0 && more * price < worth * cost) || n_rows == size_t(model_.n_batch())) {
            break;
        }
        price += price == 0.0 ? 1.0 : cost;
        worth += more;
        ++n_kept[i];
        ++n_rows;
    }
    size_t n = 0;
    for (size_t i = 0; i < n_parts_; ++i) {
        part & p = parts_[i];
        if (!p.reads()) {
            p.nodes.resize(n_kept[i]);
        }
        if (!p.nodes.empty()) {
            std::swap(parts_[n++], p);
        }
    }
    n_parts_ = n;
}

} // namespace duo
