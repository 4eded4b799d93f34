#include "window_choice.h"

#include <algorithm>
#include <array>
#include <limits>

namespace duo {

namespace {
constexpr int32_t n_telling  = 16; // a prompt with fewer rows says too little about the time of a row
constexpr int32_t n_row_pass = 16; // a prompt's row costs what it does in such a pass, if nothing is measured

// A draft that reads the last n tokens of a prompt, and how much it then saves of what one saves that reads all
// (benchmarks/history/guesses.md, "A window for the draft's prompt").
struct window_worth {
    int32_t n;
    double  share;
};
constexpr std::array<window_worth, 6> windows{
    {{64, 0.31}, {128, 0.33}, {256, 0.37}, {512, 0.63}, {1024, 0.85}, {n_window_all, 1.0}}};
} // namespace

void window_choice::on_prompt(int32_t n_rows, int64_t us) {
    row_us_ = n_rows >= n_telling ? double(us) / n_rows : row_us_;
}

int32_t window_choice::choose(const verify_slot & s, int32_t n_left, int64_t elapsed_us) const {
    const int32_t asked = s.text.req().plan.n_window;
    if (asked != n_window_auto || !planner_.worth().may_skip()) {
        return asked;
    }
    const double saved = planner_.worth().saves(n_left);
    if (saved <= 0.0 && planner_.worth().pays(std::numeric_limits<int64_t>::max(), n_left, elapsed_us)) {
        return n_window_some; // nothing is known yet
    }
    int32_t best  = windows.front().n;
    double  value = 0.0;
    for (const auto & [n, share] : windows) {
        const int64_t us   = reading_us(s, n);
        const double  more = share * saved - double(us);
        if (more > value || (value == 0.0 && planner_.worth().pays(us, n_left, elapsed_us))) {
            best  = n;
            value = std::max(0.0, more);
        }
    }
    return best;
}

int64_t window_choice::reading_us(const verify_slot & s, int32_t n_window) const {
    const pair_profile & p      = planner_.profile();
    const double         pass   = p.pass_us(1, false);
    const double         c      = pass > 0.0 ? std::min(1.0, p.step_us(1, false) / pass) : 1.0;
    const double         row    = row_us_ > 0.0 ? row_us_ : p.pass_us(n_row_pass, false) / n_row_pass;
    const int32_t        n_rows = s.draft.reading_of(int32_t(s.text.tokens().size()), n_window).n_rows;
    return int64_t(c * row * n_rows);
}

} // namespace duo
