// The tile registers of a processor with AMX: eight registers of up to 16 rows of 64 bytes. Their shapes are set
// together, from tables in static memory. GCC 12's _tile_loadconfig declares that it reads eight bytes only, so GCC may
// remove other stores to a local struct as dead. For the same reason the instructions are written out here, with
// everything that they read and write.
#pragma once

#include "kernel.h"

namespace duo::cpu {
namespace {

constexpr int n_tile_rows = 16; // inputs that share a tile

// Shapes for sums of `m` inputs: a product takes n_bytes of each input (A) and n_bytes / 4 rows of weights (B).
struct tile_shapes {
    int n_sums;    // registers 0 ... hold sums (C), m x 16
    int n_inputs;  // the next registers hold inputs (A)
    int n_weights; // the last ones hold weights (B)
    int n_bytes;
};

constexpr tile_shapes shapes[] = {
    {2, 2, 2, 32}, // blocks of 32 8-bit codes
    {4, 2, 2, 64}, // 32 bf16
    {2, 2, 2, 16}, // blocks of 16 8-bit codes
};

constexpr int shapes_of(format f) {
    const bool in_16 = f == format::iq2_xs || f == format::iq2_s || f == format::iq1_m;
    return f == format::bf16 ? 1 : in_16 ? 2 : 0;
}

// Columns of a tile product of 8-bit codes: those that share a scale.
constexpr int tile_columns(format f) {
    return shapes[shapes_of(f)].n_bytes;
}

struct tile_table {
    tile_config of[3][n_tile_rows];
};

constexpr tile_table make_tile_table() {
    tile_table t{};
    for (int s = 0; s < 3; ++s) {
        for (int m = 1; m <= n_tile_rows; ++m) {
            tile_config & c = t.of[s][m - 1];
            c.palette       = 1;
            int i           = 0;
            for (const int end = shapes[s].n_sums; i < end; ++i) {
                c.rows[i]    = uint8_t(m);
                c.n_bytes[i] = 64;
            }
            for (const int end = i + shapes[s].n_inputs; i < end; ++i) {
                c.rows[i]    = uint8_t(m);
                c.n_bytes[i] = uint16_t(shapes[s].n_bytes);
            }
            for (const int end = i + shapes[s].n_weights; i < end; ++i) {
                c.rows[i]    = uint8_t(shapes[s].n_bytes / 4);
                c.n_bytes[i] = 64;
            }
        }
    }
    return t;
}

alignas(64) constexpr tile_table tile_configs = make_tile_table();

// Inputs per tile if `width` inputs are split into as few equal tiles as possible.
constexpr int tile_rows(int width) {
    const int n = (width + n_tile_rows - 1) / n_tile_rows;
    return (width + n - 1) / n;
}

#if defined(DUO_KERNEL_AMX)
struct tile_registers {
    static void configure(const tile_config & c) { asm volatile("ldtilecfg %0" ::"m"(c)); }
    static void save(tile_config & c) { asm volatile("sttilecfg %0" : "=m"(c)); }

    template <int t> static void zero() { asm volatile("tilezero %%tmm%c0" ::"i"(t)); }
    template <int t> static void load(const void * p, int64_t stride) {
        asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(t) : "memory");
    }
    template <int t> static void store(void * p, int64_t stride) {
        asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(stride), "i"(t) : "memory");
    }
    // sum += inputs * weights, both signed.
    template <int sum, int inputs, int weights> static void dot_codes() {
        asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sum), "i"(inputs), "i"(weights));
    }
    template <int sum, int inputs, int weights> static void dot_bf16() {
        asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sum), "i"(inputs), "i"(weights));
    }
};
#endif

} // namespace
} // namespace duo::cpu
