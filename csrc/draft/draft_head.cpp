#include "draft_head.h"

#include <algorithm>

#include "base/same.h"
#include "text/request.h"

namespace duo {

namespace {
// States that wait while the draft rests. When it goes on, so much of the text is enough to begin with.
constexpr size_t n_run_most = 1024;
// Steps by which a head's own states may lag behind the target's before they are made anew. Each adds some error, and
// heads are trained for five to seven.
constexpr int32_t n_lag_most = 4;
} // namespace

void draft_head::take(int32_t pos, token_id token, std::span<const float> features) {
    if (!run_.empty() && pos < end()) {
        return; // evaluated again by the target: it is known
    }
    if (run_.empty() || pos > end()) {
        run_.clear();
        first_ = pos;
    }
    run_.push_back({token, {features.begin(), features.end()}});
    if (run_.size() > n_run_most) {
        run_.pop_front();
        ++first_;
    }
}

void draft_head::begin(std::span<const token_id> old_text, std::span<const token_id> text) {
    nodes_.clear();
    int32_t n = n_same(old_text, text);
    if (size_t(n) == old_text.size()) { // the run may know more of the old text than the draft was told
        while (n < int32_t(text.size()) && n >= first_ && n < end() &&
               run_[size_t(n - first_)].token == text[size_t(n)]) {
            ++n;
        }
    }
    run_.resize(size_t(std::clamp(n - first_, 0, int32_t(run_.size()))));
}

int32_t draft_head::n_ready(int32_t pos) const {
    return pos - 1 < first_ ? 0 : std::max(0, end() - (pos - 1));
}

int32_t draft_head::first_ready(int32_t pos) const {
    return run_.empty() || pos > first_ ? pos : first_ + 1;
}

void draft_head::bridge(int32_t pos) {
    if (!run_.empty()) {
        for (; first_ > pos - 1; --first_) {
            run_.push_front(run_.front());
        }
    }
}

void draft_head::append(int32_t pos, int32_t n, std::vector<float> & out) const {
    for (int32_t p = pos - 1; p < pos - 1 + n; ++p) {
        const std::vector<float> & features = run_[size_t(p - first_)].features;
        out.insert(out.end(), features.begin(), features.end());
    }
}

void draft_head::append_tokens(std::vector<token_id> & text) const {
    for (auto n = int32_t(text.size()); n >= first_ && n < end(); ++n) {
        text.push_back(run_[size_t(n - first_)].token);
    }
}

void draft_head::drop_before(int32_t pos) {
    for (; !run_.empty() && first_ < pos - 1; ++first_) {
        run_.pop_front();
    }
}

void draft_head::keep(const token_tree & tree, int32_t i, std::span<const float> state) {
    const int32_t age     = i == 0 ? 0 : nodes_.at(tree.at(tree.at(i).parent).id).age + 1;
    nodes_[tree.at(i).id] = {{state.begin(), state.end()}, age};
}

int16_t draft_head::age_below(node_id node) const {
    const auto it = nodes_.find(node);
    return it == nodes_.end() ? no_age : int16_t(std::min(it->second.age, n_draft_cap));
}

bool draft_head::is_stale(const token_tree & tree) const {
    for (int32_t i = 1; i < tree.size(); ++i) {
        if (tree.at(i).expanded() && nodes_.at(tree.at(i).id).age - tree.at(i).depth > n_lag_most) {
            return true;
        }
    }
    return false;
}

void draft_head::prune(const token_tree & tree) {
    std::erase_if(nodes_, [&tree](const auto & entry) {
        const int32_t i = tree.find(entry.first);
        return i < 0 || !tree.at(i).expanded();
    });
}

} // namespace duo
