#include "pass_texts.h"

#include <algorithm>

#include "context_shift.h"
#include "picture_rows.h"
#include "prompt_marks.h"

namespace duo {

namespace {
constexpr size_t n_piece_alone  = 512; // rows of a prompt in a pass, where another text may come
constexpr size_t n_piece_beside = 64;  // prompt rows beside texts that are written
constexpr size_t n_piece_least  = 16;  // at least
constexpr double longest_piece  = 1.7; // time of a piece, in the first pieces' time
} // namespace

size_t pass_texts::n_to_read(const verify_slot & s) const {
    const size_t n_batch = size_t(model_.facts().n_batch);
    const bool copy = model_.facts().undo == undo_kind::copy; // what was right after a wrong guess is in the next pass
    const size_t n_last = s.text.req().n_predict == 0 ? 1
                          : copy                      ? n_batch
                          : n_batch > n_draft_cap     ? n_batch - n_draft_cap
                                                      : 1;
    const size_t n_most = n_slots_ > 1 ? std::min(n_batch, n_piece_alone) : n_batch;
    if (const size_t n = n_before_shift(model_, s); n > 0) {
        return std::min(n_batch, n);
    }
    const size_t n_mark = n_to_mark(model_, s);
    if (n_to_picture(s) < s.n_missing()) {
        return one_kind(s, std::min(n_mark, n_most));
    }
    if (n_mark < s.n_missing()) {
        return std::min(n_mark, n_most);
    }
    const size_t n = s.n_missing() > std::min(n_last, n_most) ? std::min(n_most, s.n_missing() - 1) : 0;
    return n == 1 && copy ? 0 : n; // the model might not keep a single row
}

size_t pass_texts::one_kind(const verify_slot & s, size_t n_rows) {
    const size_t n = n_to_picture(s);
    return n == 0 ? n_of_picture(s) : std::min(n, n_rows);
}

// A picture takes long, so texts that are written have a pass between two of them. others: there are such texts beside
// these.
bool pass_texts::read_picture(target_pass & pass, const std::vector<verify_slot *> & texts, bool others) {
    verify_slot * first = nullptr;
    for (verify_slot * s : texts) {
        s->n_read       = 0;
        const bool sees = n_of_picture(*s) > 0;
        others          = others || !sees;
        first           = sees && (first == nullptr || s->n_begun < first->n_begun) ? s : first;
    }
    was_picture_ = first != nullptr && !(others && was_picture_);
    if (was_picture_) {
        first->n_read = n_of_picture(*first);
        pass.slots().push_back(first);
    }
    return was_picture_;
}

void pass_texts::fill(target_pass & pass, const std::vector<verify_slot *> & all) {
    if (all.size() == 1) {
        pass.begin(*all.front());
        all.front()->n_read = n_to_read(*all.front());
        return;
    }
    const std::vector<verify_slot *> & texts = scales_.choose(all);
    // Those with other scales are not in this pass, and wait for its end.
    const bool others = std::ranges::any_of(all, [&texts](const verify_slot * s) {
        return s->n_missing() <= n_short && std::ranges::find(texts, s) == texts.end();
    });
    pass.clear();
    if (read_picture(pass, texts, others)) {
        return;
    }
    share(texts, others);
    for (verify_slot * s : texts) {
        if (s->n_read > 0) {
            pass.slots().push_back(s);
            s->n_read = s->n_read < s->n_missing() ? s->n_read : 0; // all of them: it verifies
        }
    }
    keep_one_width(pass.slots());
    ++n_turns_;
    for (verify_slot * s : pass.slots()) {
        s->n_turn = n_turns_;
    }
}

// Sets n_read of the texts. writing: some others are written.
void pass_texts::share(const std::vector<verify_slot *> & texts, bool writing) {
    const size_t n_all  = size_t(model_.facts().n_batch);
    size_t       n_left = n_all;
    const auto   n_most = [this](const verify_slot & s) { // a text that is to have no tokens only reads
        const bool reads = s.text.finish() != finish_reason::none || n_before_shift(model_, s) > 0;
        return std::min({s.n_missing() - (reads ? 1 : 0), n_to_mark(model_, s), n_to_picture(s)});
    };
    const auto give = [&](verify_slot & s, size_t n) {
        n = std::min({n, n_most(s) - s.n_read, n_left});
        s.n_read += n;
        n_left -= n;
        return n;
    };
    long_.clear();
    for (verify_slot * s : texts) { // no prompt takes the rows of a text that is written
        s->n_read          = 0;
        const bool is_long = s->n_missing() > n_short;
        writing            = writing || !is_long;
        if (is_long) {
            long_.push_back(s);
        } else {
            give(*s, n_short);
        }
    }
    // Half of the rows for prompts are for the one that came first, so that it goes on whatever comes. The others are
    // for the shortest ones, which do not wait for a long one to be read.
    size_t n_pieces = writing ? std::min(n_piece_beside, n_piece_) : n_piece_alone;
    if (!long_.empty()) {
        n_pieces -= give(*long_.front(), (n_pieces + 1) / 2);
        std::stable_sort(long_.begin(), long_.end(),
                         [](const auto * a, const auto * b) { return a->n_missing() < b->n_missing(); });
    }
    for (verify_slot * s : long_) {
        n_pieces -= give(*s, n_pieces);
    }
}

// Late in a long prompt attention takes most of a pass. Pieces become shorter then, so that a text that is written
// waits about as long as before.
void pass_texts::measure(const target_pass & pass) {
    size_t n = 0;
    for (const verify_slot * s : pass.slots()) {
        n += s->n_read;
    }
    if (n < n_piece_least || was_picture_) {
        return;
    }
    const double us  = double(pass.us()) / double(n);
    piece_row_us_    = piece_row_us_ == 0.0 ? us : std::min(us, piece_row_us_ * 1.001);
    const double fit = longest_piece * double(n_piece_beside) * piece_row_us_ / std::max(us, 1e-3);
    n_piece_         = std::clamp(size_t(fit), n_piece_least, n_piece_beside);
}

// Of texts with a recurrent state, a pass has one, or several that each give one row and equally many guesses: libllama
// would divide other passes. Those take turns.
void pass_texts::keep_one_width(std::vector<verify_slot *> & slots) {
    if (model_.facts().undo == undo_kind::cells || slots.empty()) {
        return;
    }
    const auto one_row = [](const verify_slot * s) { return s->n_read == 0 && s->n_missing() == 1; };
    const auto first   = *std::min_element(
        slots.begin(), slots.end(), [](const verify_slot * a, const verify_slot * b) { return a->n_turn < b->n_turn; });
    const auto n_even = int32_t(std::count_if(slots.begin(), slots.end(), one_row));
    const bool even   = one_row(first) && n_even > 1 && model_.n_undo_together(n_even) >= 0;
    std::erase_if(slots, [&](const verify_slot * s) { return s != first && !(even && one_row(s)); });
    // The model might not keep a single row, but it does before a picture.
    if (first->n_read == 1 && model_.facts().undo == undo_kind::copy && n_to_picture(*first) > 1) {
        first->n_read = first->n_missing() > 2 ? 2 : 0;
    }
    // libllama takes sequences together that follow each other (llama_batch_allocr::split_equal).
    std::sort(slots.begin(), slots.end(),
              [](const verify_slot * a, const verify_slot * b) { return a->index < b->index; });
}

} // namespace duo
