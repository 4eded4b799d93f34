// Converts the blocks of a GGUF file (ggml-common.h: block_q8_0 ... block_iq1_m) to numbers and back.
#pragma once

#include <cstdint>
#include <cstring>

#include "format.h"

namespace duo::cpu {

// One row of one unit: codes of up to 8 bits (unsigned), scales and minima of its blocks.
struct unit_row {
    alignas(64) uint8_t codes[256];
    uint8_t d[8];        // f16 scale (and minimum's scale) of the unit; for blocks of 32: of block 0 and 1, then minima
                         // (MXFP4: bf16)
    uint8_t  scales[16]; // of the row's blocks
    uint8_t  least[16];
    uint16_t indices[64]; // of a codebook's points
    uint8_t  signs[32];   // of eight columns each; IQ1: 1 if an eighth is subtracted from them, 0 if it is added
};

// Bytes in the file of one row of a unit.
constexpr size_t file_unit(const format_traits & t) {
    return size_t(t.n_unit / t.n_file_block * t.n_file_bytes);
}

// Four bytes that need not be aligned.
inline uint32_t load32(const uint8_t * p) {
    uint32_t u;
    std::memcpy(&u, p, 4);
    return u;
}

inline void store32(uint8_t * p, uint32_t u) {
    std::memcpy(p, &u, 4);
}

// 16 bytes of a block of 32: code i and i + 16 share a byte. Codes may have higher bits, which are elsewhere.
inline void read_halves(const uint8_t * p, uint8_t * codes) {
    for (int i = 0; i < 16; ++i) {
        codes[i]      = p[i] & 15;
        codes[i + 16] = p[i] >> 4;
    }
}

inline void write_halves(const uint8_t * codes, uint8_t * p) {
    for (int i = 0; i < 16; ++i) {
        p[i] = uint8_t((codes[i] & 15) | ((codes[i + 16] & 15) << 4));
    }
}

// Both functions are for the integer formats only.
void read_unit(format f, const uint8_t * file, unit_row & u);
void write_unit(format f, const unit_row & u, uint8_t * file);

// The same for units of 256 columns.
void read_unit_k(format f, const uint8_t * file, unit_row & u);
void write_unit_k(format f, const unit_row & u, uint8_t * file);

// The same for points of a codebook.
void read_unit_iq(format f, const uint8_t * file, unit_row & u);
void write_unit_iq(format f, const unit_row & u, uint8_t * file);

} // namespace duo::cpu
