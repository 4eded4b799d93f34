#include "draft_wishes.h"

#include <algorithm>

namespace duo {

namespace {
constexpr int32_t n_branch_auto = 8; // frontier nodes that the draft expands at once
} // namespace

draft_wishes wish_rule::of(const text_share & t) const {
    const plan_params & p    = *t.plan;
    const bool          best = p.mode == run_mode::sync && p.use == tree_use::dynamic && t.shape->empty();
    return {.n_ahead      = n_ahead(t),
            .n_branch     = n_branch(t),
            .n_want       = best ? t.n_most : 0,
            .least_path   = least_path(t),
            .branch_price = int32_t(std::clamp(1000.0 * profile_.branch_price(), 1.0, 30000.0)),
            .n_threads    = stances_.threads().draft};
}

int32_t wish_rule::n_ahead(const text_share & t) const {
    const plan_params & p = *t.plan;
    if (stances_.measuring() || stances_.now() == stance::rest || t.n_most <= 0) {
        return 0;
    }
    if (!t.shape->empty()) {
        return p.mode == run_mode::sync ? t.shape->depth() : 2 * t.shape->depth() + 2;
    }
    if (!turns(p)) { // twice what is verified, so that the tree goes on behind an accepted path
        return std::min(2 * t.n_most, n_draft_cap) + 2;
    }
    if (t.fixed) {
        return t.n_most;
    }
    int32_t n = n_by_turn(t);
    // The draft does not know how much a head's guesses lose with each step.
    if (rates_.guesses().has_ages()) {
        const double price = rates_.price_of_guess(stances_.rate());
        while (n > std::max(1, p.n_min) && rates_.guesses().hope_of_age(n - 1) < price) {
            --n;
        }
    }
    return n;
}

// Where guesses are better than on average, one text's draft goes on. That of several would keep the others waiting.
int32_t wish_rule::n_by_turn(const text_share & t) const {
    const int32_t k = rates_.now().hopeful.k;
    return std::min(
        {t.n_most, rates_.terms().n_texts > 1 ? k + 1 : 2 * k + 1, profile_.passes().widest_try(t.plan->n_min)});
}

bool wish_rule::spares(const text_share & t) const {
    if (t.repeats.empty() || t.fixed || t.plan->n_min > 0 || !turns(*t.plan) || stances_.measuring() ||
        t.repeats.front() < rates_.acceptance(0, 0)) { // the draft itself knows where it is right
        return false;
    }
    const double  guess   = rates_.price_of_guess(stances_.rate());
    const int32_t n_rows  = std::min(t.n_most, profile_.passes().widest_try(0));
    double        drafted = 0.0; // tokens that the draft's guesses bring, less their price
    double        reached = 1.0;
    double        sum     = 0.0;
    for (int32_t i = 0; i < n_by_turn(t); ++i) {
        reached *= rates_.acceptance(i, i);
        sum += reached - guess;
        drafted = std::max(drafted, sum);
    }
    sum = 0.0;
    for (int32_t i = 0; i < std::min(n_rows, int32_t(t.repeats.size())); ++i) {
        sum += t.repeats[size_t(i)];
        if (sum - rates_.price_of_rows(stances_.rate(), i + 1) > drafted) {
            return true;
        }
    }
    return false;
}

int32_t wish_rule::n_branch(const text_share & t) const {
    const plan_params & p    = *t.plan;
    const bool          free = rates_.terms().n_levels > 1 && !t.fixed; // a block's branches cost no step
    if ((turns(p) && p.use != tree_use::dynamic && !free) || (free && p.use == tree_use::chain)) {
        return 1;
    }
    return p.n_branch > 0 ? p.n_branch : n_branch_auto;
}

// The draft knows its estimate of the node that it would expand, but not yet that of the guess below it.
int32_t wish_rule::least_path(const text_share & t) const {
    const plan_params & p = *t.plan;
    if (!turns(p) || t.fixed || p.n_min > 0 || rates_.terms().n_levels > 1) {
        return 0;
    }
    const int32_t k     = std::max(1, rates_.now().hopeful.k);
    const double  next  = rates_.acceptance(k - 1, k - 1);
    const double  least = rates_.guesses().trusted().estimate_for(rates_.price_of_guess(stances_.rate()) / next);
    return int32_t(std::clamp(1000.0 * least, 0.0, 900.0));
}

} // namespace duo
