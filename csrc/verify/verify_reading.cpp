// Several texts in one pass: which of them read or write in it, and how many rows of their prompts they read.
#include <algorithm>
#include <numeric>

#include "verify_worker.h"

namespace duo {

namespace {
constexpr size_t n_piece       = 64;  // prompt rows beside texts that are written
constexpr size_t n_piece_least = 16;  // at least
constexpr double longest_piece = 1.7; // time of a piece, in the first pieces' time
constexpr size_t n_piece_most  = 512; // where none is
constexpr size_t n_short       = 16;  // missing rows of a text that is being written
} // namespace

// Late in a long prompt attention takes most of a pass. Pieces become shorter then, so that a text that is written
// waits about as long as before.
void verify_worker::measure_piece() {
    size_t n = 0;
    for (const verify_slot * s : pass_) {
        n += s->n_read;
    }
    if (n < n_piece_least) {
        return;
    }
    const double us  = double(t_pass1_ - t_pass0_) / double(n);
    piece_row_us_    = piece_row_us_ == 0.0 ? us : std::min(us, piece_row_us_ * 1.001);
    const double fit = longest_piece * double(n_piece) * piece_row_us_ / std::max(us, 1e-3);
    n_piece_         = std::clamp(size_t(fit), n_piece_least, n_piece);
}

// Rows of the pass without drafted ones.
size_t verify_worker::n_base_rows() const {
    return std::accumulate(pass_.begin(), pass_.end(), size_t(0), [](size_t n, const verify_slot * s) {
        return n + (s->n_read > 0 ? s->n_read : s->n_missing());
    });
}

// Of texts with a recurrent state, a pass has one, or several that each give one row and equally many guesses: libllama
// would divide other passes. Those take turns.
void verify_worker::keep_one_width() {
    if (model_.undo() == undo_kind::cells || pass_.empty()) {
        return;
    }
    const auto one_row = [](const verify_slot * s) { return s->n_read == 0 && s->n_missing() == 1; };
    const auto first   = *std::min_element(
        pass_.begin(), pass_.end(), [](const verify_slot * a, const verify_slot * b) { return a->n_turn < b->n_turn; });
    const auto n_even = int32_t(std::count_if(pass_.begin(), pass_.end(), one_row));
    const bool even   = one_row(first) && n_even > 1 && model_.n_undo_together(n_even) >= 0;
    std::erase_if(pass_, [&](const verify_slot * s) { return s != first && !(even && one_row(s)); });
    if (first->n_read == 1 && model_.undo() == undo_kind::copy) { // the model might not keep a single row
        first->n_read = first->n_missing() > 2 ? 2 : 0;
    }
    // libllama takes sequences together that follow each other (llama_batch_allocr::split_equal).
    std::sort(pass_.begin(), pass_.end(),
              [](const verify_slot * a, const verify_slot * b) { return a->index < b->index; });
    ++n_turns_;
    for (verify_slot * s : pass_) {
        s->n_turn = n_turns_;
    }
}

// Fills pass_ and sets n_read of its texts.
void verify_worker::plan_reading() {
    const size_t n_all  = size_t(model_.n_batch());
    size_t       n_left = n_all;
    const auto   n_most = [this](const verify_slot & s) { // a text that is to have no tokens only reads
        return std::min(s.n_missing() - (s.text.finish() == finish_reason::none ? 0 : 1), n_to_mark(s));
    };
    const auto give = [&](verify_slot & s, size_t n) {
        n = std::min({n, n_most(s) - s.n_read, n_left});
        s.n_read += n;
        n_left -= n;
        return n;
    };
    bool writing = false;
    reading_.clear();
    for (verify_slot * s : active_) { // no prompt takes the rows of a text that is written
        s->n_read          = 0;
        const bool is_long = s->n_missing() > n_short;
        writing            = writing || !is_long;
        if (is_long) {
            reading_.push_back(s);
        } else {
            give(*s, n_short);
        }
    }
    // Half of the rows for prompts are for the one that came first, so that it goes on whatever comes. The others are
    // for the shortest ones, which do not wait for a long one to be read.
    size_t n_pieces = writing ? std::min(n_piece, n_piece_) : n_piece_most;
    if (!reading_.empty()) {
        n_pieces -= give(*reading_.front(), (n_pieces + 1) / 2);
        std::stable_sort(reading_.begin(), reading_.end(),
                         [](const auto * a, const auto * b) { return a->n_missing() < b->n_missing(); });
    }
    for (verify_slot * s : reading_) {
        n_pieces -= give(*s, n_pieces);
    }
    for (verify_slot * s : active_) {
        if (s->n_read > 0) {
            pass_.push_back(s);
            s->n_read = s->n_read < s->n_missing() ? s->n_read : 0; // all of them: it verifies
        }
    }
}

} // namespace duo
