// Asks for the pages of mapped weights shortly before products need them, where the file does not fit into memory. A
// page fault brings little and waits for it; asked for together, the matrices of a layer come several times as fast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "page_system.h"

namespace duo::cpu {

// One context's. Like the context, only one thread at a time may use it.
class page_reader {
  public:
    explicit page_reader(page_system system) : system_(std::move(system)) {}

    // A product with the matrix at `data`, of n_bytes, is computed next.
    void before_matrix(const uint8_t * data, size_t n_bytes);
    // The same with these experts of a weight with matrices of n_bytes. router: names the choice; the weights of a
    // layer have the same.
    void before_experts(const uint8_t * data, size_t n_bytes, const void * router, std::span<const int32_t> chosen);

    // Passes have had to read from a disk lately.
    [[nodiscard]] bool reads() const { return n_quiet_ < n_quiet_most; }
    // Mapped layers with experts, as far as they are known; that of the last experts (-1: it is not mapped).
    [[nodiscard]] int32_t n_layers() const { return int32_t(layers_.size()); }
    [[nodiscard]] int32_t layer_now() const { return layer_now_; }
    // Appends the matrices of an expert; bytes of all experts' of all layers.
    using matrices = std::vector<std::span<const uint8_t>>;
    void                 append(int32_t layer, int32_t expert, matrices & out) const;
    [[nodiscard]] size_t n_bytes(int32_t n_expert) const;

  private:
    static constexpr int32_t n_quiet_most = 16; // rounds without reading after which it asks for nothing

    struct product {
        const uint8_t * data;
        size_t          n_bytes; // of a matrix
        int32_t         layer;   // of experts: those with the same router
        bool            experts;
        uint64_t        wanted = 0; // the last round in which it was asked for
    };

    product * find(const uint8_t * data, size_t n_bytes, const void * router);
    void      begin_round();
    void      want(product & p, std::span<const int32_t> matrices);

    page_system                                 system_;
    std::vector<product>                        products_;         // in the order of the first pass
    std::unordered_map<const uint8_t *, size_t> index_;            // by address
    const void *                                router_ = nullptr; // of the last experts that are new
    std::vector<std::vector<size_t>>            layers_;           // products of their experts
    int32_t                                     layer_now_ = -1;
    size_t                                      i_now_     = 0;
    uint64_t                                    round_     = 1;            // over the products; a pass has one or more
    uint64_t                                    n_read_    = 0;            // when it began
    int32_t                                     n_quiet_   = n_quiet_most; // rounds since one that has read from a disk
};

} // namespace duo::cpu
