// What an instruction set offers: one product of a panel with up to n_width inputs, for each format, and the
// preparation of inputs for it. Built once per instruction set from panel.h.
#pragma once

#include <vector>

#include "format.h"

namespace duo::cpu {

// Up to n_width_most inputs (columns of the right-hand matrix), interleaved so that a kernel reads one stream.
struct tile {
    int             width;
    const void *    codes; // int8: [k/4][width][4] (NEON: [k/8][width][8]); bf16: [k/2][width][2]; f32: [k][width]
    const float *   scale; // [k/32 or k/256][width]
    const int32_t * start; // [k/32 or k/16][width]
    const int32_t * pairs; // q8_k: [k/64][width], two 16-bit sums of 32 codes each
};

// Bytes of each part of a tile.
struct tile_layout {
    size_t               codes, scale, start, pairs;
    [[nodiscard]] size_t bytes() const { return codes + scale + start + pairs; }
};

constexpr size_t line_up(size_t n) {
    return (n + 63) / 64 * 64;
}

constexpr tile_layout layout_of(input_kind kind, int64_t k, int width) {
    const auto w  = size_t(width);
    const auto up = [](int64_t a, int64_t b) { return size_t((a + b - 1) / b); };
    switch (kind) {
        case input_kind::q8_full:
        case input_kind::q8_four:
            return {line_up(size_t(k) * w), line_up(up(k, 32) * w * 4), line_up(up(k, 32) * w * 4), 0};
        case input_kind::q8_k:
            return {line_up(size_t(k) * w), line_up(up(k, 256) * w * 4), line_up(up(k, 16) * w * 4),
                    line_up(up(k, 64) * w * 4)};
        case input_kind::bf16:
            return {line_up(size_t(k) * w * 2), 0, 0, 0};
        case input_kind::f32:
            break;
    }
    return {line_up(size_t(k) * w * 4), 0, 0, 0};
}

inline tile tile_at(void * memory, input_kind kind, int64_t k, int width) {
    const tile_layout l = layout_of(kind, k, width);
    auto *            p = static_cast<uint8_t *>(memory);
    return {width, p, reinterpret_cast<float *>(p + l.codes), reinterpret_cast<int32_t *>(p + l.codes + l.scale),
            reinterpret_cast<int32_t *>(p + l.codes + l.scale + l.start)};
}

// acc[width][16] += a part of a panel (n_k columns from column k0) times the tile. A column's sums are made in the same
// order whatever the width.
using panel_fn = void (*)(const uint8_t * weights, const tile & x, int64_t k0, int64_t n_k, float * acc);

// Columns [k0, k1) of an input of k floats become column i of the tile. k0 and k1: multiples of 256, or k.
using prepare_fn = void (*)(const float * x, int64_t k0, int64_t k1, int i, const tile & t);

struct kernel_set {
    const char * name;
    int          n_width; // widest tile
    panel_fn     panel[n_formats][n_width_most];
    prepare_fn   prepare[n_input_kinds];
};

extern const kernel_set kernels_portable;
#if defined(DUO_X86) // set by cpu.cmake, with those of the variants that the compiler can make
extern const kernel_set kernels_avx2;
extern const kernel_set kernels_avx_vnni;
extern const kernel_set kernels_avx512;
extern const kernel_set kernels_avx512_bf16;
#elif defined(DUO_ARM)
extern const kernel_set kernels_neon_dot;
extern const kernel_set kernels_neon_i8mm;
#endif

// The best set that this machine runs, or nullptr if that is the portable one: stock kernels are the better choice then.
// Decided once. DUO_CPU_ISA=NAME forces one that the machine can run; nullptr: it cannot.
const kernel_set * best_kernels();

// By name; nullptr: unknown, or this machine cannot run it.
const kernel_set * kernels_named(const char * name);

// All that this machine runs, best first; the last is the portable one.
std::vector<const kernel_set *> kernels_here();

} // namespace duo::cpu
