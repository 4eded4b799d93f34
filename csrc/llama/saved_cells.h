// Finds out where libllama puts the cells of a saved text. It does not say so, and attention needs to know
// (cell_order).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cpu/cell_order.h"

namespace duo {

// The order of rows that share a position, by their place in a picture.
constexpr int32_t place_within(int32_t x, int32_t y) {
    return int32_t(uint32_t(y) * 4096 + uint32_t(x));
}

// Before the restore each key of a cache's first layer is replaced by a mark with its number. After it the marks are
// looked for in the cache, and the keys are put in their place. Layout: llama_kv_cache::state_write
// (llama-kv-cache.cpp) with flash attention, one stream, and one sequence in each cell.
class saved_cells {
  public:
    // image: what a memory has written, behind its head. n_extra: bytes that each cell has besides position and
    // sequences. n_tensors: of a layer, 1 or 2. n_caches: at most; a recurrent state follows them. Throws duo::error
    // for another layout.
    saved_cells(std::span<const char> image, size_t n_extra, uint32_t n_tensors, size_t n_caches);

    // Marks a copy of the image.
    void mark(std::span<char> image) const;
    // The copy was restored: puts the keys of `image` in the place of the marks, and tells `order` of the cells. Throws
    // duo::error if a mark is missing; the cells must not be used then.
    // text: cell_order's number of it.
    void restore_keys(std::span<const char> image, cpu::cell_order & order, int32_t text) const;

  private:
    struct cache {
        std::vector<int32_t> pos;           // of each cell
        std::vector<int32_t> within;        // of each cell: see place_within()
        size_t               first_key = 0; // where the first layer's keys are
        size_t               n_key     = 0; // bytes of one
    };

    // False: the tensor is not the one.
    static bool restore_keys(const cache & c, uint32_t number, const ggml_tensor * keys, std::span<const char> image,
                             cpu::cell_order & order, int32_t text);

    std::vector<cache> caches_; // two if the model has sliding windows
};

} // namespace duo
