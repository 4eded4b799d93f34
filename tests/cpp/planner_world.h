// Made-up worlds for the planner: what passes and draft steps cost and how often the draft is right is given.
#pragma once

#include <algorithm>
#include <functional>

#include "check.h"
#include "core/planner.h"
#include "random.h"

namespace duo_test {

using namespace duo;

// Time is simulated: the draft grows its chain while the target works or waits, as the two workers do.
struct world {
    std::function<double(int)> v; // pass over n rows, microseconds
    double                     step_us = 100.0;
    double                     a       = 0.7; // acceptance at every position
    int32_t                    n_room  = 1000;
    int32_t                    n_min   = 0; // as in the plan's parameters: a shorter chain is not verified
    uint64_t                   seed    = 1;

    struct result {
        int     n_passes  = 0;
        int     n_drafted = 0; // passes with drafted tokens
        int     n_tokens  = 0;
        int     n_waits   = 0;
        double  width     = 0.0; // mean of drafted tokens per pass
        double  us        = 0.0;
        int32_t n_most    = 0; // widest plan
        int32_t n_least   = 1000;
        double  speed() const { return n_tokens / us; }
    };

    result run(planner & pl, int n_passes) {
        dice    d(seed++);
        result  r;
        double  ahead   = 0.0; // draft's nodes ready, a fraction of a step as well
        int32_t n_ahead = pl.look_ahead();
        for (int i = 0; i < n_passes; ++i) {
            const auto grow = [&](double us) {
                ahead = std::max(ahead, std::min(double(n_ahead), ahead + us / step_us));
            };
            const bool growing = int32_t(ahead) < n_ahead;
            const plan p       = pl.next(int32_t(ahead), n_room, growing);
            r.n_most           = std::max(r.n_most, p.n_verify);
            r.n_least          = std::min(r.n_least, p.n_verify);
            double us          = 0.0;
            if (p.wait_us > 0 && ahead < p.n_verify && growing) {
                us = std::min(double(p.wait_us), (std::min(p.n_verify, n_ahead) - ahead) * step_us + 0.01);
                grow(us);
                ++r.n_waits;
            }
            int32_t m = std::min(p.n_verify, int32_t(ahead));
            m         = m < n_min ? 0 : m;
            us += v(m + 1);
            grow(v(m + 1));
            pl.on_pass(m + 1, int64_t(v(m + 1)));
            pl.on_step(float(step_us));
            int32_t j = 0;
            for (; j < m; ++j) {
                const bool right = d.chance(a);
                pl.on_accept(j, right);
                if (!right) {
                    break;
                }
            }
            // Behind the accepted nodes the next one, if it is there, may be the target's choice too.
            const bool known = j == m && int32_t(ahead) > m;
            const bool hit   = known && d.chance(a);
            if (known) {
                pl.on_accept(j, hit);
            } else if (j == m) {
                pl.on_late_guess(d.chance(a));
            }
            ahead   = hit ? ahead - j - 1 : 0.0;
            n_ahead = pl.look_ahead();
            ++r.n_passes;
            r.n_drafted += m > 0 ? 1 : 0;
            r.n_tokens += j + 1;
            r.width += m;
            r.us += us;
        }
        r.width /= n_passes;
        return r;
    }
};

inline plan_params params(run_mode mode, int32_t n_max = n_draft_auto, int32_t n_min = 0) {
    return {.mode = mode, .n_max = n_max, .n_min = n_min};
}

inline double flat(int /*n*/) {
    return 10000.0;
}

inline double sloped(int n) {
    return 10000.0 * (1.0 + 0.1 * (n - 1));
}

// A stock CPU: v(2) = 3, v(4) = 4, v(8) = 5.
inline double stock(int n) {
    return 10000.0 * (n == 1 ? 1.0 : n <= 4 ? 3.0 + 0.5 * (n - 2) : 4.0 + 0.25 * (n - 4));
}

} // namespace duo_test
