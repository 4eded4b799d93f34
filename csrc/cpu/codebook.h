// The codebooks of IQ2 and IQ3: an index in the file stands for the sizes of eight (IQ2) or four (IQ3) numbers, whose
// signs are stored apart.
#pragma once

#include <cstdint>

#include "format.h"

namespace duo::cpu {

// In an entry, the size of column i is a digit (0 to 2, or 0 to 7) in byte i % 4. Columns 0 to 3 have its lower half,
// columns 4 to 7 the upper half. The highest bit of each half is free for the sign.
template <int n> struct codebook {
    alignas(64) uint32_t entries[n];
};

extern const codebook<256>  book_iq2_xxs;
extern const codebook<512>  book_iq2_xs;
extern const codebook<1024> book_iq2_s;
extern const codebook<256>  book_iq3_xxs;
extern const codebook<512>  book_iq3_s;

// What a packed unit has: scale of the unit (and a gap), scales of blocks, upper bits of indices, then for each 32
// columns their signs and the lower bytes of the indices.
struct codebook_layout {
    int n_columns; // of an entry
    int n_high;    // bits of an index above the eighth
    int n_scales;  // of a row

    [[nodiscard]] constexpr int n_entries() const { return 256 / n_columns; } // of a row
    [[nodiscard]] constexpr int high_at() const { return 64 + 8 * n_scales; }
    [[nodiscard]] constexpr int n_head() const { return high_at() + 2 * n_entries() * n_high; }
    [[nodiscard]] constexpr int n_block() const { return 64 + 2 * n_entries(); }
};

constexpr codebook_layout codebook_layout_of(format f) {
    switch (f) {
        case format::iq2_xxs:
            return {8, 0, 8};
        case format::iq2_xs:
            return {8, 1, 16};
        case format::iq2_s:
            return {8, 2, 16};
        case format::iq3_xxs:
            return {4, 0, 8};
        default:
            return {4, 1, 8}; // IQ3_S
    }
}

} // namespace duo::cpu
