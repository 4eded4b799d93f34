// A scripted target and its draft head in a real pipeline.
#pragma once

#include "pair.h"
#include "scripted_head.h"

namespace duo_test {

inline behaviour target_with(const behaviour & b) {
    behaviour t    = b;
    t.has_features = true;
    t.agree        = 1.0;
    t.throw_at     = -1; // the head's
    return t;
}

// A target and its head.
struct headed {
    scripted_model target;
    scripted_head  head;
    pipeline       line;

    explicit headed(const behaviour & b, const pipeline::options & opt = {})
        : target(target_with(b)), head(b), line(&target, &head, opt) {}
};

inline std::vector<token_id> some_prompt(dice & d, int32_t n, int32_t n_vocab) {
    std::vector<token_id> out;
    for (int32_t i = 0; i < n; ++i) {
        out.push_back(token_id(1 + d.below(uint32_t(n_vocab - 1))));
    }
    return out;
}

// A head that is always right, in turns: each pass but the last accepts all that it may.
inline void check_all_accepted(const answer & a, int32_t n_max, const std::string & note) {
    CHECK(a.stats.n_accepted >= (a.stats.n_passes - 2) * n_max, note);
    CHECK_EQ(a.stats.n_drafted - a.stats.n_accepted <= n_max, true, note);
}

} // namespace duo_test
