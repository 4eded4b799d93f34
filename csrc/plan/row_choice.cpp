#include "row_choice.h"

#include <algorithm>

namespace duo {

// What the user or a test has fixed is in the pass anyway. Adds it to n_base, takes it from n_rows.
void row_choice::take_fixed(std::span<text_share> texts, int32_t & n_base, int32_t & n_rows) {
    for (text_share & t : texts) {
        n_base += t.n_base;
        if (t.tree != nullptr && t.fixed) {
            take(t, !t.shape->empty() || t.plan->use == tree_use::dynamic, std::min(t.n_most, n_rows));
            n_base += int32_t(t.tree->rows().size());
            n_rows -= int32_t(t.tree->rows().size());
        }
    }
}

// > 0: a wait pays.
int64_t row_choice::choose(std::span<text_share> texts, int32_t n_rows) {
    const auto   n_texts = int32_t(texts.size());
    text_share * any     = nullptr; // whose rows are chosen
    int32_t      n_base  = 0;
    take_fixed(texts, n_base, n_rows);
    values_.clear();
    for (int32_t i = 0; i < n_texts; ++i) {
        text_share & t = texts[size_t(i)];
        if (t.tree != nullptr && t.n_most > 0 && !t.fixed) {
            values_.add(*t.tree, t.tree->best_path(), size_t(t.n_most), i);
            any = &t;
        }
    }
    if (any == nullptr) {
        return 0;
    }
    const bool    alone  = n_texts == 1;
    const int32_t n_most = std::min({n_rows, alone ? any->n_most : n_rows,
                                     std::max(profile_.passes().widest_try(alone ? any->plan->n_min : 0), n_texts)});
    if (!alone) {
        values_.sort();
    }
    const bool   turns = stances_.now() == stance::by_turn;
    const double r =
        turns ? std::min(stances_.rate(), values_.best_ratio(profile_, n_texts, n_base, n_most)) : stances_.rate();
    values_.price(profile_, n_base, n_most, stances_.now() == stance::ahead, r);
    row_values::gain best = values_.best(n_base, n_most, alone ? any->plan->n_min : 0, alone && rates_.terms().copy);
    const bool wide = alone && (!turns || rates_.terms().n_levels > 1) && prefers_tree(*any, n_base, n_most, best);
    best            = best.value < row_values::least_gain ? row_values::gain{} : best;
    if (alone && waits_.pays(best.value, *any, n_most, values_)) {
        return waits_.us(std::max(1, any->plan->n_min - int32_t(any->tree->best_path().size())), *any);
    }
    n_of_.assign(texts.size(), 0);
    for (int32_t i = 0; i < best.n; ++i) {
        ++n_of_[size_t(values_.text_of(i))];
    }
    for (size_t i = 0; i < texts.size(); ++i) {
        if (n_of_[i] > 0) {
            take(texts[i], wide, n_of_[i]);
        }
    }
    return 0;
}

// True if more of the tree is worth more than the part of the best path that is `best`, which it replaces. Nodes
// accepted beside the best path are evaluated once more, so a tree has to be clearly better.
bool row_choice::prefers_tree(const text_share & t, int32_t n_base, int32_t n_most, row_values::gain & best) {
    if (t.plan->use != tree_use::automatic || t.n_branch == 1 || t.tree->nodes().size() <= t.tree->best_path().size()) {
        return false;
    }
    values_.clear();
    values_.add(*t.tree, t.tree->by_chance(), size_t(n_most), 0);
    const row_values::gain all  = values_.best(n_base, n_most, t.plan->n_min, rates_.terms().copy);
    const bool             wide = all.value > best.value + row_values::least_gain;
    best                        = wide ? all : best;
    return wide;
}

// Chooses the first n nodes of the best path or of the whole tree, as far as there are branches for them.
void row_choice::take(text_share & t, bool wide, int32_t n) {
    t.tree->choose(wide ? t.tree->by_chance() : t.tree->best_path(), size_t(std::max(0, n)), t.n_branch);
    if (int32_t(t.tree->rows().size()) < t.plan->n_min) {
        t.tree->choose({}, 0, t.n_branch);
    }
    t.expected = t.tree->expected();
}

} // namespace duo
