#include "saved_cells.h"

#include <algorithm>
#include <cstring>

#include <ggml-backend.h>

#include "base/error.h"

namespace duo {

namespace {

struct key_mark {
    uint64_t name  = 0x9d5f31c86ab7e24b; // by chance: no key looks like it
    uint32_t cache = 0;
    uint32_t cell  = 0;
};

class reader {
  public:
    explicit reader(std::span<const char> from) : from_(from) {}

    [[nodiscard]] size_t at() const { return at_; }
    [[nodiscard]] bool   done() const { return at_ == from_.size(); }

    void skip(size_t n) {
        if (n > from_.size() - at_) {
            throw error(error_kind::bad_value, "the saved cells end too early");
        }
        at_ += n;
    }

    template <typename T> T get() {
        T x{};
        skip(sizeof x);
        std::memcpy(&x, from_.data() + at_ - sizeof x, sizeof x);
        return x;
    }

  private:
    std::span<const char> from_;
    size_t                at_ = 0;
};

void require(bool as_expected) {
    if (!as_expected) {
        throw error(error_kind::bad_value, "the saved cells have an unknown layout");
    }
}

} // namespace

saved_cells::saved_cells(std::span<const char> image, size_t n_extra, uint32_t n_tensors, size_t n_caches) {
    reader in(image);
    while (!in.done() && caches_.size() < n_caches) {
        cache & c = caches_.emplace_back();
        require(in.get<uint32_t>() == 1); // stream
        const auto n_cells = in.get<uint32_t>();
        if (n_cells == 0) {
            continue;
        }
        for (uint32_t i = 0; i < n_cells; ++i) {
            c.pos.push_back(in.get<int32_t>());
            require(in.get<uint32_t>() == 1 && c.pos.back() >= 0); // sequence
            int32_t x = 0;
            int32_t y = 0;
            if (n_extra >= 2 * sizeof(int32_t)) { // llama_kv_cell_ext
                x = in.get<int32_t>();
                y = in.get<int32_t>();
                in.skip(n_extra - 2 * sizeof(int32_t));
            }
            const bool text = x == c.pos.back() && y == x; // libllama gives a token its position in all parts
            c.within.push_back(text ? 0 : place_within(x, y));
            in.skip(sizeof(int32_t));
        }
        require(in.get<uint32_t>() == 0); // values are not transposed
        const auto n_layers = in.get<uint32_t>();
        if (n_layers == 0) { // all of them have windows
            c.pos.clear();
        }
        for (uint32_t i = 0; i < n_tensors * n_layers; ++i) { // keys, then values
            in.skip(sizeof(int32_t));                         // type
            const auto n_row = in.get<uint64_t>();
            require(n_row <= image.size() / n_cells);
            if (i == 0) {
                c.first_key = in.at();
                c.n_key     = n_row;
                require(n_row >= sizeof(key_mark));
            }
            in.skip(n_cells * n_row);
        }
    }
}

void saved_cells::mark(std::span<char> image) const {
    for (uint32_t n = 0; n < caches_.size(); ++n) {
        const cache & c = caches_[n];
        for (uint32_t i = 0; i < c.pos.size(); ++i) {
            const key_mark m{.cache = n, .cell = i};
            std::memcpy(image.data() + c.first_key + i * c.n_key, &m, sizeof m);
        }
    }
}

void saved_cells::restore_keys(std::span<const char> image, cpu::cell_order & order, int32_t text) const {
    const auto all = order.caches();
    for (uint32_t n = 0; n < caches_.size(); ++n) {
        const cache & c     = caches_[n];
        bool          found = c.pos.empty();
        for (size_t i = 0; i < all.size() && !found; ++i) {
            found = std::any_of(all[i].begin(), all[i].end(),
                                [&](const ggml_tensor * t) { return restore_keys(c, n, t, image, order, text); });
        }
        if (!found) {
            throw error("libllama has put restored cells where they were not expected");
        }
    }
}

bool saved_cells::restore_keys(const cache & c, uint32_t number, const ggml_tensor * keys, std::span<const char> image,
                               cpu::cell_order & order, int32_t text) {
    if (keys->buffer == nullptr || !ggml_backend_buffer_is_host(keys->buffer) || keys->nb[1] != c.n_key) {
        return false;
    }
    std::vector<int32_t>              cells;
    std::vector<cpu::cell_order::row> rows;
    auto *                            key = static_cast<char *>(keys->data);
    for (int32_t i = 0; i < int32_t(keys->ne[1]) && cells.size() < c.pos.size(); ++i, key += c.n_key) {
        const key_mark any;
        key_mark       m;
        std::memcpy(&m, key, sizeof m);
        if (m.name == any.name && m.cache == number && m.cell < c.pos.size()) {
            std::memcpy(key, image.data() + c.first_key + m.cell * c.n_key, c.n_key);
            cells.push_back(i);
            rows.push_back({.pos = c.pos[m.cell], .text = text, .within = c.within[m.cell]});
        }
    }
    if (cells.empty()) {
        return false;
    }
    if (cells.size() < c.pos.size()) {
        throw error("libllama has not restored all cells");
    }
    order.restored(keys, cells, rows);
    return true;
}

} // namespace duo
