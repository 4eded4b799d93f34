#include "row_values.h"

#include <algorithm>

namespace duo {

void row_values::add(const pass_tree & tree, const std::vector<int32_t> & order, size_t n, int32_t text) {
    for (size_t i = 0; i < std::min(n, order.size()); ++i) {
        nodes_.push_back({tree.nodes()[size_t(order[i])].chance, text, !tree.on_best_path(order[i])});
    }
}

// A path's chances fall along it, so its nodes stay in their order.
void row_values::sort() {
    std::ranges::stable_sort(nodes_, std::greater<>{}, &node::chance);
}

void row_values::price(const pair_profile & profile, int32_t n_base, int32_t n_most, bool beside, double r) {
    const double base = profile.pass_us(n_base, beside);
    for (int32_t m = 0; m <= n_most + 1; ++m) {
        cost_[size_t(m)] = r * (profile.pass_us(n_base + m, beside) - base);
    }
}

double row_values::best_ratio(const pair_profile & profile, int32_t n_texts, int32_t n_base, int32_t n_most) const {
    double best = 0.0;
    double sum  = n_texts;
    for (int32_t m = 0; m <= std::min(int32_t(nodes_.size()), n_most); ++m) {
        sum += m == 0 ? 0.0 : nodes_[size_t(m - 1)].chance;
        const double us = profile.pass_us(n_base + m, false);
        best            = us > 0.0 ? std::max(best, sum / us) : best;
    }
    return best;
}

row_values::gain row_values::best(int32_t n_base, int32_t n_most, int32_t n_min, bool copy) const {
    double sum   = 0.0;
    double twice = 0.0; // tokens that the next pass will probably have to evaluate again
    double right = 1.0; // chance of all of a chain
    gain   best;
    for (int32_t m = 1; m <= std::min(int32_t(nodes_.size()), n_most); ++m) {
        const node & last = nodes_[size_t(m - 1)];
        sum += last.chance;
        twice += last.beside ? last.chance : 0.0;
        if (copy) { // all that was right before this guess, if this is the first wrong one
            twice += (right - last.chance) * (n_base + m - 1);
            right = last.chance;
        }
        const double value = sum - cost(m) - twice * (cost(m + 1) - cost(m));
        if (value > best.value && m >= n_min) {
            best = {.value = value, .n = m};
        }
    }
    return best;
}

} // namespace duo
