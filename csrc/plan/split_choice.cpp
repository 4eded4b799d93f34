#include "split_choice.h"

namespace duo {

split_search split_choice::begun(const pair_prior & prior) {
    split_search s;
    s.begin(prior.splits.size(), prior.split);
    return s;
}

// True if the target waits for the draft when both work at once, rather than the draft for the target.
bool split_choice::draft_is_late() const {
    const int32_t k = rates_.now().ahead.k;
    return k * profile_.step_us(1, true) > profile_.pass_us(k + 1, true);
}

void split_choice::try_other(split_search & s) const {
    if (s.on_pass(draft_is_late())) {
        use(s);
    }
}

void split_choice::judge(split_search & s, pace & own, int32_t n_tokens, double expected, double us) const {
    const double trial_rate = rates_.now().ahead.rate;
    profile_.choose_split(s.best());
    const double best   = rates_.now().ahead.rate;
    const size_t before = s.best();
    if (!s.on_trial_pass(n_tokens, expected, us, own.rate(), trial_rate, best) && s.best() != before) {
        own = s.tried();
    }
    use(s);
}

bool split_choice::move_on(split_search & s) const {
    const bool other = s.move_on(draft_is_late());
    use(s);
    return other;
}

} // namespace duo
