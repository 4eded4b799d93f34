// The kernels of an instruction set: for each format the product of a panel with up to n_width inputs, the preparation
// of these inputs, and attention. Built once per instruction set from panel.h.
#pragma once

#include <string>
#include <vector>

#include "attention.h"
#include "format.h"

namespace duo::cpu {

// Up to n_width_most inputs (columns of the right-hand matrix), interleaved so that a kernel reads one stream. Wide
// kernels take up to n_wide_most inputs as [k/32][width][32], in bytes or bf16.
struct tile {
    int             width;
    const void *    codes; // int8: [k/4][width][4] (NEON: [k/8][width][8]); bf16: [k/2][width][2]; f32: [k][width]
    const float *   scale; // [k/32 or k/256][width]
    const int32_t * start; // [k/32 or k/16][width]
    const int32_t * pairs; // q8_k: [k/64][width], two 16-bit sums of 32 codes each
    const float *   total; // q8_sums: [k/32][width], scale * sum of 32 codes
    int             ahead; // bytes: how far ahead weights are prefetched
};

// Bytes of each part of a tile.
struct tile_layout {
    size_t               codes, scale, start, pairs, total;
    [[nodiscard]] size_t bytes() const { return codes + scale + start + pairs + total; }
};

constexpr size_t line_up(size_t n) {
    return (n + 63) / 64 * 64;
}

constexpr int    n_wide_most   = 32;
constexpr size_t n_wide_beyond = 256;

constexpr tile_layout layout_of(input_kind kind, int64_t k, int width) {
    const auto w  = size_t(width);
    const auto up = [](int64_t a, int64_t b) { return size_t((a + b - 1) / b); };
    switch (kind) {
        case input_kind::q8_full:
        case input_kind::q8_four:
        case input_kind::q8_five:
            return {line_up(size_t(k) * w + n_wide_beyond), line_up(up(k, 32) * w * 4), line_up(up(k, 32) * w * 4), 0,
                    0};
        case input_kind::q8_sums:
            return {line_up(size_t(k) * w + n_wide_beyond), line_up(up(k, 32) * w * 4), 0, 0,
                    line_up(up(k, 32) * w * 4)};
        case input_kind::q8_k:
            return {line_up(size_t(k) * w + n_wide_beyond), line_up(up(k, 256) * w * 4), line_up(up(k, 16) * w * 4),
                    line_up(up(k, 64) * w * 4), 0};
        case input_kind::q8_k_full:
            return {line_up(size_t(k) * w + n_wide_beyond), line_up(up(k, 256) * w * 4), line_up(up(k, 32) * w * 4), 0,
                    0};
        case input_kind::bf16:
            return {line_up(size_t(k) * w * 2 + n_wide_beyond), 0, 0, 0, 0};
        case input_kind::f32:
            break;
    }
    return {line_up(size_t(k) * w * 4), 0, 0, 0, 0};
}

inline tile tile_at(void * memory, input_kind kind, int64_t k, int width, int ahead = 0) {
    const tile_layout l = layout_of(kind, k, width);
    auto *            p = static_cast<uint8_t *>(memory);
    return {width,
            p,
            reinterpret_cast<float *>(p + l.codes),
            reinterpret_cast<int32_t *>(p + l.codes + l.scale),
            reinterpret_cast<int32_t *>(p + l.codes + l.scale + l.start),
            reinterpret_cast<float *>(p + l.codes + l.scale + l.start + l.pairs),
            ahead};
}

// acc[width][16] += a part of a panel (n_k columns from column k0) times the tile. The order of a column's sums does
// not depend on the width.
using panel_fn = void (*)(const uint8_t * weights, const tile & x, int64_t k0, int64_t n_k, float * acc);

// Converts columns [k0, k1) of an input of k floats into column i of the tile. k0 and k1: multiples of 256, or k.
using prepare_fn = void (*)(const float * x, int64_t k0, int64_t k1, int i, const tile & t);

// Writes n_blocks * 32 floats as 4-bit blocks of Q4_0 or IQ4_NL, in the file's form.
using quantise_fn = void (*)(format f, const float * x, int64_t n_blocks, uint8_t * file);

// The shapes of a thread's tile registers, in the form of LDTILECFG (Intel AMX). Palette 0: no tiles.
struct alignas(64) tile_config {
    uint8_t  palette;
    uint8_t  start_row;
    uint8_t  reserved[14];
    uint16_t n_bytes[16]; // of a row
    uint8_t  rows[16];
};
static_assert(sizeof(tile_config) == 64);

// Kernels for many inputs at once, on tile registers. They give the same bits as the narrow kernels, or the format has
// no narrow ones. They may read (but never use) n_wide_beyond bytes after a tile's codes.
struct wide_kernels {
    int        from[n_formats];  // smallest number of inputs
    panel_fn   panel[n_formats]; // nullptr: narrow kernels only
    prepare_fn prepare[n_input_kinds];

    // The configuration of the calling thread. Save it before you configure and load it afterwards: ggml configures a
    // thread once and relies on that from then on.
    void (*save)(tile_config &);
    void (*load)(const tile_config &);
    const tile_config & (*config_of)(format f, int width);
};

struct kernel_set {
    const char *         name;
    int                  n_width; // widest tile
    panel_fn             panel[n_formats][n_width_most];
    prepare_fn           prepare[n_input_kinds];
    attend_fn            attend;
    quantise_fn          quantise;
    const wide_kernels * wide;

    [[nodiscard]] bool is_wide(format f, int n) const {
        return wide != nullptr && wide->panel[int(f)] != nullptr && n >= wide->from[int(f)];
    }

    // How n inputs are prepared for this format. Formats for which this is the same function can share them.
    [[nodiscard]] prepare_fn prepare_of(format f, int n) const {
        return (is_wide(f, n) ? wide->prepare : prepare)[int(traits_of(f).input)];
    }
};

extern const kernel_set kernels_portable;
#if defined(DUO_X86) // cpu.cmake sets this, and a macro for each variant that the compiler supports
extern const kernel_set   kernels_avx2;
extern const kernel_set   kernels_avx_vnni;
extern const kernel_set   kernels_avx512;
extern const kernel_set   kernels_avx512_bf16;
extern const wide_kernels wide_amx;
extern const wide_kernels wide_amx_emulated;
extern const wide_kernels wide_amx_portable;
#elif defined(DUO_ARM)
extern const kernel_set kernels_neon_dot;
extern const kernel_set kernels_neon_i8mm;
#endif

// The best set that this machine runs, or nullptr if only the portable one runs, because stock kernels are better then.
// Decided once. DUO_CPU_ISA=NAME selects a set; nullptr: this machine cannot run it. Only DUO_CPU_ISA can select
// amx_emulated and amx_portable, whose tiles are plain C++.
const kernel_set * best_kernels();

// The sets that best_kernels() chooses from, best first.
std::vector<const kernel_set *> usable_kernels();

// Excludes sets that the processor announces but that crashed a child process (duo.placement.guard). Call it only
// before the first best_kernels(); not thread-safe.
void                             refuse_kernels(std::vector<std::string> names);
const std::vector<std::string> & refused_kernels();

// The set with this name; nullptr: unknown, or this machine cannot run it.
const kernel_set * kernels_named(const char * name);

// All sets that this machine runs, best first, the portable one last. by_name_alone: those that only DUO_CPU_ISA
// selects.
std::vector<const kernel_set *> kernels_here(bool by_name_alone = false);

} // namespace duo::cpu
