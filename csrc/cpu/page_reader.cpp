#include "page_reader.h"

#include <algorithm>
#include <array>

namespace duo::cpu {

namespace {
constexpr size_t                 n_ahead = size_t(64) << 20; // bytes of matrices that it asks for before their products
constexpr std::array<int32_t, 1> only_one{0};
} // namespace

void page_reader::before_matrix(const uint8_t * data, size_t n_bytes) {
    if (find(data, n_bytes, nullptr) == nullptr) {
        return;
    }
    size_t n = 0;
    for (size_t i = i_now_; i < products_.size() && n < n_ahead; ++i) {
        if (!products_[i].experts) {
            n += products_[i].n_bytes;
            want(products_[i], only_one);
        }
    }
}

void page_reader::before_experts(const uint8_t * data, size_t n_bytes, const void * router,
                                 std::span<const int32_t> chosen) {
    const product * const p = find(data, n_bytes, router);
    if (p == nullptr) {
        return;
    }
    const int32_t layer = p->layer;
    for (size_t i = i_now_; i < products_.size() && (!products_[i].experts || products_[i].layer == layer); ++i) {
        if (products_[i].experts) {
            want(products_[i], chosen);
        }
    }
}

// What is computed now. nullptr: its weights are not mapped, or are probably in memory.
page_reader::product * page_reader::find(const uint8_t * data, size_t n_bytes, const void * router) {
    if (!system_.is_mapped(data)) {
        layer_now_ = router != nullptr ? -1 : layer_now_;
        return nullptr;
    }
    const auto [at, is_new] = index_.try_emplace(data, products_.size());
    if (products_.empty()) {
        n_read_ = system_.n_read();
    }
    if (is_new) {
        if (router != nullptr && router != router_) {
            router_ = router;
            layers_.emplace_back();
        }
        if (router != nullptr) {
            layers_.back().push_back(products_.size());
        }
        products_.push_back({.data = data, .n_bytes = n_bytes, .layer = n_layers() - 1, .experts = router != nullptr});
    } else if (at->second <= i_now_) {
        begin_round();
    }
    i_now_ = at->second;
    if (router != nullptr) {
        layer_now_ = products_[i_now_].layer;
    }
    // Of a weight that is new, a page in its middle stands for all.
    const bool asks = is_new ? !system_.in_memory(data + n_bytes / 2) : n_quiet_ < n_quiet_most;
    return asks ? &products_[i_now_] : nullptr;
}

void page_reader::append(int32_t layer, int32_t expert, matrices & out) const {
    for (const size_t i : layers_[size_t(layer)]) {
        const product & p = products_[i];
        out.emplace_back(p.data + size_t(expert) * p.n_bytes, p.n_bytes);
    }
}

size_t page_reader::n_bytes(int32_t n_expert) const {
    size_t n = 0;
    for (const product & p : products_) {
        n += p.experts ? p.n_bytes * size_t(n_expert) : 0;
    }
    return n;
}

// Where all weights are in memory, asking for them would cost time in each pass.
void page_reader::begin_round() {
    ++round_;
    const uint64_t n_read = system_.n_read();
    n_quiet_              = n_read > n_read_ ? 0 : std::min(n_quiet_ + 1, n_quiet_most);
    n_read_               = std::max(n_read_, n_read); // while a fetcher reads, it is too low
}

void page_reader::want(product & p, std::span<const int32_t> matrices) {
    if (p.wanted == round_) {
        return;
    }
    p.wanted = round_;
    for (const int32_t i : matrices) {
        system_.want(p.data + size_t(i) * p.n_bytes, p.n_bytes);
    }
}

} // namespace duo::cpu
