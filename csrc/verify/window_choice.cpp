#include "window_choice.h"

#include <algorithm>
#include <array>

#include "picture_rows.h"

namespace duo {

namespace {
constexpr int32_t n_no_limit = 1 << 30; // tokens
constexpr int32_t n_telling  = 16;      // a prompt with fewer rows says too little about the time of a row
constexpr int32_t n_row_pass = 16;      // a prompt's row costs what it does in such a pass, if nothing is measured

// Those that are tried (benchmarks/history/guesses.md, "A window for the draft's prompt").
constexpr std::array<chosen_window, 6> windows{
    {{64, 0.31}, {128, 0.33}, {256, 0.37}, {512, 0.63}, {1024, 0.85}, {n_window_all, 1.0}}};
} // namespace

void window_choice::on_prompt(int32_t n_rows, int64_t us) {
    row_us_ = n_rows >= n_telling ? double(us) / n_rows : row_us_;
}

int32_t window_choice::n_to_come(const verify_slot & s) const {
    const request & req     = s.text.req();
    const int32_t   n_limit = req.n_predict < 0 ? n_no_limit : req.n_predict - req.stats.n_predicted;
    const bool      whole   = req.sampling.ignore_eos && req.n_predict >= 0; // it goes to its limit
    return whole ? n_limit : lengths_.to_come(req.stats.n_predicted, n_limit);
}

chosen_window window_choice::choose(const verify_slot & s, int32_t n_left, int64_t elapsed_us) const {
    const bool          sees  = s.text.req().pictures.for_draft() != nullptr; // then it reads all
    const int32_t       asked = sees ? n_window_all : s.text.req().plan.n_window;
    const draft_worth & worth = planner_.worth();
    if (asked != n_window_auto || !worth.may_skip()) {
        return {.n = asked};
    }
    if (!worth.known()) {
        return {.n = n_window_some};
    }
    const double  saved = worth.saves(n_left);
    chosen_window best  = windows.front();
    double        value = 0.0;
    for (const chosen_window & w : windows) {
        const int64_t us   = reading_us(s, w.n);
        const double  more = w.share * saved - double(us);
        if (more > value || (value == 0.0 && worth.may_try(us, n_left, elapsed_us))) {
            best  = w;
            value = std::max(0.0, more);
        }
    }
    return best;
}

int64_t window_choice::reading_us(const verify_slot & s, int32_t n_window) const {
    return rows_us(s.draft.reading_of(n_for_draft(s), n_window).n_rows);
}

int64_t window_choice::missed_us(const verify_slot & s) const {
    return rows_us(s.draft.n_unread(n_for_draft(s)));
}

int64_t window_choice::rows_us(int32_t n_rows) const {
    const pair_profile & p    = planner_.profile();
    const double         pass = p.pass_us(1, false);
    const double         c    = pass > 0.0 ? std::min(1.0, p.step_us(1, false) / pass) : 1.0;
    const double         row  = row_us_ > 0.0 ? row_us_ : p.pass_us(n_row_pass, false) / n_row_pass;
    return int64_t(c * row * n_rows);
}

} // namespace duo
