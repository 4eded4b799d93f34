#include "kept_state.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"

namespace duo {

namespace {

constexpr uint64_t marks_magic  = 0x736b72616d6f7564; // "duomarks"
constexpr uint64_t n_saved_most = 1 << 16;

struct mark_entry {
    int64_t pos   = 0;
    int64_t bytes = 0;
};

struct marks_end {
    uint64_t n     = 0;
    uint64_t magic = marks_magic;
};

template <typename T> T last_of(std::span<const char> & bytes) {
    if (bytes.size() < sizeof(T)) {
        throw error(error_kind::bad_value, "the saved state ends too early");
    }
    T x{};
    std::memcpy(&x, bytes.data() + bytes.size() - sizeof x, sizeof x);
    bytes = bytes.first(bytes.size() - sizeof x);
    return x;
}

} // namespace

void kept_state::before_pass(bool taken_back) {
    drop_padding();
    n_back_ = 0;
    if (spare_ < 0 || !taken_back || n_spare_ == n_held()) {
        return;
    }
    forget_copies();
    n_spare_ = n_held();
    if (n_spare_ > 0) {
        llama_memory_seq_cp(memory_, own_, spare_, -1, -1);
    }
}

// The state before the pass is not among the snapshots.
void kept_state::after_pass(int32_t n_rows, int32_t n_padding) {
    n_back_    = std::min(n_snapshots_, n_rows - 1);
    n_padding_ = n_padding;
}

bool kept_state::rollback(int32_t pos) {
    const int32_t n = n_held();
    if (pos >= n) {
        return true;
    }
    if (pos <= 0) {
        forget();
        return llama_memory_seq_rm(memory_, own_, -1, -1);
    }
    if (n + n_padding_ - pos <= n_back_) {
        n_back_ = n_padding_ = 0;
        return llama_memory_seq_rm(memory_, own_, pos, -1);
    }
    return (pos == n_spare_ || pos == n_marked(pos)) && take_back(pos) == pos;
}

int32_t kept_state::take_back(int32_t pos) {
    const int32_t n = n_held();
    if (pos >= n) {
        return n;
    }
    if (pos > 0 && n + n_padding_ - pos <= n_back_ && rollback(pos)) {
        return pos;
    }
    if (n_marked(pos) > (n_spare_ > 0 && n_spare_ <= pos ? n_spare_ : 0) && to_mark(pos)) {
        return n_held();
    }
    if (n_spare_ > 0 && n_spare_ <= pos) {
        n_padding_ = 0;
        llama_memory_seq_rm(memory_, own_, -1, -1);
        llama_memory_seq_cp(memory_, spare_, own_, -1, -1);
        return n_spare_;
    }
    return rollback(0) ? 0 : n;
}

void kept_state::drop_padding() {
    if (n_padding_ > 0) {
        const int32_t n = n_held();
        n_back_ = n_padding_ = 0;
        if (!llama_memory_seq_rm(memory_, own_, n, -1)) {
            throw error("padding rows could not be taken back from a recurrent state");
        }
    }
}

void kept_state::forget() {
    forget_copies();
    marks_.clear();
}

void kept_state::forget_copies() {
    if (n_spare_ > 0) {
        llama_memory_seq_rm(memory_, spare_, -1, -1);
    }
    n_spare_ = -1;
    n_back_ = n_padding_ = 0;
}

void kept_state::mark() {
    drop_padding();
    const int32_t n = n_held();
    std::erase_if(marks_, [n](const state & m) { return m.pos >= n; }); // of a text that was here before
    if (n <= 0 || n_marks_ == 0 || (!marks_.empty() && n - marks_.back().pos < mark_step_)) {
        return;
    }
    state s{.pos = n, .saved = {}};
    try {
        s.saved.resize(llama_state_seq_get_size_ext(context_, own_, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY));
    } catch (const std::bad_alloc &) {
        return; // it is not needed
    }
    const size_t n_bytes = llama_state_seq_get_data_ext(context_, reinterpret_cast<uint8_t *>(s.saved.data()),
                                                        s.saved.size(), own_, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY);
    if (n_bytes == 0 || n_bytes > s.saved.size()) {
        return;
    }
    s.saved.resize(n_bytes);
    marks_.push_back(std::move(s));
    drop_oldest();
}

void kept_state::drop_oldest() {
    if (marks_.size() > n_marks_) {
        marks_.erase(marks_.begin(), marks_.end() - std::ptrdiff_t(n_marks_));
    }
}

int32_t kept_state::n_marked(int32_t pos) const {
    const auto m = std::find_if(marks_.rbegin(), marks_.rend(), [pos](const state & x) { return x.pos <= pos; });
    return m == marks_.rend() ? 0 : m->pos;
}

// The cells of layers that attend are still there. False: the sequence is empty.
bool kept_state::to_mark(int32_t pos) {
    const int32_t n = n_marked(pos);
    std::erase_if(marks_, [n](const state & m) { return m.pos > n; });
    forget_copies();
    const std::string & s = marks_.back().saved;
    if (llama_state_seq_set_data_ext(context_, reinterpret_cast<const uint8_t *>(s.data()), s.size(), own_,
                                     LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY) == s.size() &&
        llama_memory_seq_rm(memory_, own_, n, -1) && n_held() == n) {
        return true;
    }
    forget();
    llama_memory_seq_rm(memory_, own_, -1, -1);
    return false;
}

int64_t kept_state::mark_bytes() const {
    return std::accumulate(marks_.begin(), marks_.end(), int64_t(0),
                           [](int64_t n, const state & m) { return n + int64_t(m.saved.size()); });
}

std::string kept_state::marks() const {
    std::string all;
    const auto  add = [&all](const auto & x) { all.append(reinterpret_cast<const char *>(&x), sizeof x); };
    for (const state & m : marks_) {
        all += m.saved;
        add(mark_entry{.pos = m.pos, .bytes = int64_t(m.saved.size())});
    }
    add(marks_end{.n = marks_.size()});
    return all;
}

std::span<const char> kept_state::set_marks(std::span<const char> saved) {
    const auto end = last_of<marks_end>(saved);
    if (end.magic != marks_magic || end.n > n_saved_most) {
        throw error(error_kind::bad_value, "the saved state has no marks");
    }
    marks_.clear();
    for (uint64_t i = 0; i < end.n; ++i) {
        const auto e = last_of<mark_entry>(saved);
        if (e.bytes < 0 || size_t(e.bytes) > saved.size() || e.pos <= 0) {
            throw error(error_kind::bad_value, "the saved state has a damaged mark");
        }
        marks_.insert(marks_.begin(), {.pos   = int32_t(e.pos),
                                       .saved = std::string(saved.last(size_t(e.bytes)).data(), size_t(e.bytes))});
        saved = saved.first(saved.size() - size_t(e.bytes));
    }
    drop_oldest();
    return saved;
}

} // namespace duo
