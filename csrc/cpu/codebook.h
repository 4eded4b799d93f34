// The codebooks of IQ1, IQ2 and IQ3: an index in the file stands for eight numbers (IQ1), or for the sizes of eight
// (IQ2) or four (IQ3), whose signs are stored apart.
#pragma once

#include <cstdint>

#include "format.h"

namespace duo::cpu {

// In an entry, the size of column i is a digit (0 to 2, or 0 to 7) in byte i % 4. Columns 0 to 3 have its lower half,
// columns 4 to 7 the upper half. The highest bit of each half is free for the sign,
// or for IQ1's choice of an eighth.
template <int n> struct codebook {
    alignas(64) uint32_t entries[n];
};

extern const codebook<256>  book_iq2_xxs;
extern const codebook<512>  book_iq2_xs;
extern const codebook<1024> book_iq2_s;
extern const codebook<256>  book_iq3_xxs;
extern const codebook<512>  book_iq3_s;
extern const codebook<2048> book_iq1; // digits of -1, 0 and 1

// What a packed unit has: scale of the unit (and a gap), scales of blocks in four bits each, upper bits of indices,
// then for each 32 columns their signs and the lower bytes of the indices. IQ1 has no signs. There, the upper bits of a
// block are in two bytes of each row: three for each index, then a bit for each choice of an eighth; IQ1_S has one of
// these, and then the block's scale.
struct codebook_layout {
    int n_columns; // of an entry
    int n_high;    // bits of an index above the eighth
    int n_scales;  // of a row

    [[nodiscard]] constexpr bool has_signs() const { return n_high < 3; }
    [[nodiscard]] constexpr bool has_scales() const { return has_signs() || n_scales == 16; }
    [[nodiscard]] constexpr int  n_entries() const { return 256 / n_columns; } // of a row
    [[nodiscard]] constexpr int  high_at() const { return 64 + (has_scales() ? 8 * n_scales : 0); }
    [[nodiscard]] constexpr int  n_head() const { return high_at() + (has_signs() ? 2 * n_entries() * n_high : 256); }
    [[nodiscard]] constexpr int  indices_at() const { return has_signs() ? 64 : 0; } // in a block
    [[nodiscard]] constexpr int  n_block() const { return indices_at() + 2 * n_entries(); }
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
        case format::iq3_s:
            return {4, 1, 8};
        case format::iq1_s:
            return {8, 3, 8};
        default:
            return {8, 3, 16}; // IQ1_M
    }
}

} // namespace duo::cpu
