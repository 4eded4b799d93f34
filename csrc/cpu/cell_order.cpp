#include "cell_order.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace duo::cpu {

namespace {
constexpr int32_t unwritten = std::numeric_limits<int32_t>::max(); // the cells of a cache that was never full
} // namespace

void cell_order::begin() {
    rows_.clear();
    texts_.clear();
    for (table & t : tables_) {
        t.n_written = 0;
    }
}

cell_order::table & cell_order::table_of(const ggml_tensor * cache, const ggml_tensor * cells) {
    const auto found = index_.find(cache);
    if (found != index_.end()) {
        return tables_[found->second];
    }
    // Layers that write with the same list of cells belong to one cache.
    auto t = std::find_if(tables_.begin(), tables_.end(), [cells](const table & x) { return x.cells == cells; });
    if (t == tables_.end()) {
        tables_.emplace_back();
        t = tables_.end() - 1;
    }
    t->tensors.push_back(cache);
    index_.emplace(cache, size_t(t - tables_.begin()));
    return *t;
}

void cell_order::on_node(const ggml_tensor * node) {
    if (!writes_cells(node)) {
        return;
    }
    table & t = table_of(node->view_src, node->src[1]);
    if (t.tensors.front() == node->view_src) {
        write(t, node->src[1]);
    }
}

void cell_order::set(table & t, size_t cell, const row & r) {
    if (cell >= t.pos.size()) {
        t.pos.resize(cell + 1, unwritten);
    }
    t.text.resize(t.pos.size());
    t.pos[cell]  = r.pos;
    t.text[cell] = r.text;
    if (r.within != 0 || !t.within.empty()) {
        t.within.resize(t.pos.size());
        t.within[cell] = r.within;
    }
}

void cell_order::write(table & t, const ggml_tensor * cells) {
    t.cells        = cells;
    const auto   n = size_t(ggml_nelements(cells));
    const auto * c = static_cast<const int64_t *>(cells->data);
    if (t.n_written + n > rows_.size()) {
        return; // not a list of one cell for each row
    }
    for (size_t i = 0; i < n; ++i) {
        set(t, size_t(c[i]), rows_[t.n_written + i]);
    }
    if (&t == tables_.data()) {
        texts_.clear();
        for (size_t i = 0; i < n; ++i) {
            texts_.push_back(rows_[t.n_written + i].text);
        }
    }
    t.n_written += n;
    t.n_ordered = -1;
}

std::vector<std::span<const ggml_tensor * const>> cell_order::caches() const {
    std::vector<std::span<const ggml_tensor * const>> all;
    all.reserve(tables_.size());
    for (const table & t : tables_) {
        all.emplace_back(t.tensors);
    }
    return all;
}

void cell_order::restored(const ggml_tensor * tensor, std::span<const int32_t> cells, std::span<const row> rows) {
    table & t = tables_[index_.at(tensor)];
    for (size_t i = 0; i < cells.size(); ++i) {
        set(t, size_t(cells[i]), rows[i]);
    }
    t.n_ordered = -1;
}

void cell_order::shifted(int32_t text, int32_t pos, int32_t n) {
    for (table & t : tables_) {
        for (size_t i = 0; i < t.text.size(); ++i) {
            const bool moves = t.text[i] == text && t.pos[i] != unwritten && t.pos[i] >= pos + n;
            t.pos[i] -= moves ? n : 0;
        }
        t.n_ordered = -1;
    }
}

std::span<const int32_t> cell_order::cells(const ggml_tensor * cache, int64_t n) {
    const auto found = index_.find(cache);
    if (found == index_.end()) {
        return {};
    }
    table & t = tables_[found->second];
    if (t.n_ordered == n) {
        return t.order;
    }
    t.n_ordered = n;
    t.order.clear();
    t.pos.resize(std::max(t.pos.size(), size_t(n)), unwritten);
    const auto pos = std::span(t.pos).first(size_t(n));
    if (t.within.empty() && std::is_sorted(pos.begin(), pos.end())) {
        return {};
    }
    // Counting sort. Cells with the same position stay in their order.
    const int32_t most = std::accumulate(pos.begin(), pos.end(), 0,
                                         [](int32_t m, int32_t p) { return p == unwritten ? m : std::max(m, p); });
    count_.assign(size_t(most) + 3, 0);
    const auto place = [most](int32_t p) { return size_t(p == unwritten ? most + 1 : p); };
    for (const int32_t p : pos) {
        ++count_[place(p) + 1];
    }
    std::partial_sum(count_.begin(), count_.end(), count_.begin());
    t.order.resize(size_t(n));
    for (size_t i = 0; i < pos.size(); ++i) {
        t.order[size_t(count_[place(pos[i])]++)] = int32_t(i);
    }
    order_pictures(t);
    return t.order;
}

// Cells with the same position, in the order of their rows.
void cell_order::order_pictures(table & t) {
    if (t.within.empty()) {
        return;
    }
    t.within.resize(t.pos.size());
    const auto pos = [&t](int32_t c) { return t.pos[size_t(c)]; };
    for (auto from = t.order.begin(); from != t.order.end();) {
        const auto to =
            std::find_if(from, t.order.end(), [&](int32_t c) { return pos(c) != pos(*from) || pos(c) == unwritten; });
        if (to - from > 1) { // nearly all are alone, and even then stable_sort would take memory
            std::stable_sort(from, to,
                             [&t](int32_t a, int32_t b) { return t.within[size_t(a)] < t.within[size_t(b)]; });
        }
        from = to == from ? from + 1 : to;
    }
}

std::span<const int32_t> cell_order::texts(int64_t n_tokens) const {
    return size_t(n_tokens) == texts_.size() ? std::span(texts_) : std::span<const int32_t>();
}

} // namespace duo::cpu
