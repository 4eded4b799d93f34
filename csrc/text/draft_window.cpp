#include "draft_window.h"

namespace duo {

draft_reading draft_reading::of(const draft_window & had, int32_t n_same, int32_t n_text, int32_t n_window) {
    if (n_same <= had.begin_of_rest() && had.n_left_out > 0) {
        return of({}, std::min(n_same, had.n_first), n_text, n_window); // only of the first tokens something is left
    }
    if (n_window <= 0 && had.n_left_out > 0) {
        return of({}, had.n_first, n_text, n_window);
    }
    const int32_t n_more = n_text - n_same;
    if (n_window <= 0 || n_more <= draft_window::n_sink + n_window) {
        return {.window = had, .n_kept = had.n_rows(n_same), .n_rows = n_more};
    }
    // What is cached of the beginning costs nothing.
    const int32_t n_kept  = had.n_left_out > 0 ? had.n_first : n_same;
    const int32_t n_first = std::max(n_kept, draft_window::n_sink);
    return {.window = {.n_first = n_first, .n_left_out = n_text - n_window - n_first},
            .n_kept = n_kept,
            .n_rows = n_first - n_kept + n_window};
}

} // namespace duo
