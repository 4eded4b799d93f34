#include "draft_profile.h"

namespace duo {

namespace {
constexpr int32_t n_old = 100; // passes after which a measurement counts as old
} // namespace

void average::add(double x, int64_t i_pass) {
    const bool old = n > 0 && i_pass - i_last > n_old;
    if (++n <= 3) {
        // A value that is too low makes its width attractive, so it is soon corrected. A value that is too high would
        // never be measured again.
        value = n == 1 ? x : std::min(value, x);
    } else if (old) {
        value = std::min(x, 0.5 * (value + std::min(x, 1.5 * value)));
    } else {
        // One late pass says little, so a sample counts as at most a quarter above the average; and as little below it,
        // or else samples that scatter would pull the average down.
        value += 0.15 * (std::clamp(x, value / 1.25, 1.25 * value) - value);
    }
    i_last = i_pass;
}

void draft_profile::on_step(int32_t n_rows, float us, double shared, int64_t i_pass) {
    if (us > 0.0f && n_rows >= 1) {
        step_table & t = shared < alone_share ? alone : beside;
        t[size_t(std::min(n_rows, n_step_cap))].add(double(us), i_pass);
    }
}

double draft_profile::any_step_us() const {
    for (size_t n = 1; n <= size_t(n_step_cap); ++n) {
        for (const step_table * t : {&beside, &alone}) {
            if ((*t)[n].n > 0) {
                return (*t)[n].value;
            }
        }
    }
    return 0.0;
}

} // namespace duo
