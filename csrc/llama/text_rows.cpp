#include "text_rows.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace duo {

namespace {

// Behind a saved branch with such pictures: their places, and then this.
struct places_end {
    uint64_t n     = 0;
    uint64_t magic = 0x73746369706f7564; // "duopicts"
};

} // namespace

int32_t text_rows::pos_of(int32_t branch, int32_t row) const {
    int32_t pos = row;
    for (const picture_place & p : pictures_[size_t(branch)]) {
        if (row >= p.row + p.n_rows) {
            pos -= p.n_rows - p.n_pos;
        } else if (row > p.row) { // within it
            pos -= row - p.row;
        }
    }
    return pos;
}

int32_t text_rows::rows_of(int32_t branch, int32_t n_pos) const {
    int32_t more = 0;
    for (const picture_place & p : pictures_[size_t(branch)]) {
        if (const int32_t first = p.row - more; n_pos > first && n_pos <= first + p.n_pos) {
            return p.row + p.n_rows; // it is held as a whole
        } else if (n_pos <= first) {
            break;
        }
        more += p.n_rows - p.n_pos;
    }
    return n_pos + more;
}

void text_rows::forget(int32_t branch, int32_t row) {
    std::erase_if(pictures_[size_t(branch)], [row](const picture_place & p) { return p.row + p.n_rows > row; });
}

bool text_rows::rollback(int32_t branch, int32_t row) {
    const bool done = cache_.rollback(branch, pos_of(branch, row));
    if (done) {
        forget(branch, row);
    }
    return done;
}

// Keys with two dimensions cannot move.
bool text_rows::shift(int32_t branch, int32_t row, int32_t n) {
    return pictures_[size_t(branch)].empty() && cache_.shift(branch, row, n);
}

int32_t text_rows::take_back(int32_t branch, int32_t row) {
    const int32_t n = rows_of(branch, cache_.take_back(branch, pos_of(branch, row)));
    forget(branch, n);
    return n;
}

void text_rows::fork(int32_t from, int32_t to, int32_t row) {
    cache_.fork(from, to, pos_of(from, row));
    if (from != to) {
        pictures_[size_t(to)] = pictures_[size_t(from)];
        forget(to, row);
    }
}

int32_t text_rows::n_held(int32_t branch) const {
    return rows_of(branch, cache_.n_held(branch));
}

std::string text_rows::save(int32_t branch) const {
    std::string  saved  = cache_.save(branch);
    const auto & places = pictures_[size_t(branch)];
    if (!places.empty()) {
        const places_end end{.n = places.size()};
        saved.append(reinterpret_cast<const char *>(places.data()), places.size() * sizeof(picture_place));
        saved.append(reinterpret_cast<const char *>(&end), sizeof end);
    }
    return saved;
}

std::span<const char> text_rows::split(std::span<const char> saved, std::vector<picture_place> & out) {
    places_end end;
    if (saved.size() < sizeof end || std::memcmp(saved.data() + saved.size() - sizeof end.magic, &end.magic, 8) != 0) {
        return saved;
    }
    std::memcpy(&end, saved.data() + saved.size() - sizeof end, sizeof end);
    saved = saved.first(saved.size() - sizeof end);
    if (end.n > saved.size() / sizeof(picture_place)) {
        throw error(error_kind::bad_value, "the saved pictures are damaged; evaluate the text again");
    }
    out.resize(size_t(end.n));
    const size_t n_bytes = out.size() * sizeof(picture_place);
    std::memcpy(out.data(), saved.data() + saved.size() - n_bytes, n_bytes);
    return saved.first(saved.size() - n_bytes);
}

void text_rows::restore(int32_t branch, std::span<const char> saved) {
    auto & places = pictures_[size_t(branch)];
    places.clear();
    std::vector<picture_place> found;
    try {
        cache_.restore(branch, split(saved, found));
    } catch (...) {
        cache_.rollback(branch, 0);
        throw;
    }
    places = std::move(found);
}

std::span<const row> text_rows::placed(std::span<const row> rows) {
    const auto has = [](const auto & p) { return !p.empty(); };
    if (std::none_of(pictures_.begin(), pictures_.end(), has)) {
        return rows;
    }
    placed_.assign(rows.begin(), rows.end());
    for (row & r : placed_) {
        r.pos = r.branch >= 0 && size_t(r.branch) < pictures_.size() ? pos_of(r.branch, r.pos) : r.pos;
    }
    return placed_;
}

void text_rows::add(int32_t branch, int32_t row, int32_t n_rows, int32_t n_pos) {
    if (n_rows != n_pos) {
        pictures_[size_t(branch)].push_back({.row = row, .n_rows = n_rows, .n_pos = n_pos});
    }
}

} // namespace duo
