// Kernels on tile registers: a panel's codes are the second operand of a tile product, up to 16 inputs the first.
// Written over a vector type V of 16 lanes and the tile registers T (tile_registers, emulated_tiles).
//
// 256 columns at a time (a step): their codes are unpacked to signed bytes, once for all inputs; each block of columns
// that has a scale gives a tile of integer sums; the sums are scaled as the narrow kernels do it, so bits are theirs.
// Tiles cannot be read but through memory, and a product takes some fifty cycles: while the sums of one group of inputs
// come into being those of the group before are scaled.
#pragma once

#include "panel_k.h"
#include "prepare.h"
#include "tile_registers.h"

namespace duo::cpu {
namespace {

constexpr int n_step = 256; // columns

struct alignas(64) step {
    uint8_t codes[n_step * n_lanes]; // signed, as in a panel
    float   scale[16][n_lanes];      // of each block
    float   d[n_lanes];              // K-quants: of the step
    float   d_min[n_lanes];
    int32_t least[4][n_lanes]; // Q4_K, Q5_K: the minima of blocks, in pairs
};

// Sums of a step's blocks for a group of inputs, and what they are scaled with.
struct group {
    const step *    from;
    const float *   scale; // of the inputs
    const int32_t * pairs;
    float *         acc;
    int             n; // inputs
    int64_t         width;
    int             n_blocks;
    alignas(64) int32_t sums[8 * n_tile_rows * n_lanes];
};

template <class V, int n> inline sums<V, n> loaded(const float (*rows)[n_lanes]) {
    sums<V, n> out;
#pragma GCC unroll 16
    for (int b = 0; b < n; ++b) {
        out.v[b] = V::load(rows[b]);
    }
    return out;
}

// Input c's sums of the n blocks of a K-quant, times the blocks' scales d.
template <class V, int n, int n_rows> inline typename V::floats scaled(const group & g, int c, const sums<V, n> & d) {
    typename V::floats part = V::zero();
#pragma GCC unroll 16
    for (int b = 0; b < n; ++b) {
        part = V::fma(V::to_float(V::load_i(g.sums + (b * n_rows + c) * n_lanes)), d.v[b], part);
    }
    return part;
}

// What a format adds: the bytes of a unit become signed codes and scales, sums become floats.
template <class V> struct of_q8 {
    static constexpr int n_block = 32;
    static constexpr int n_rows  = n_tile_rows;

    static void scales(const uint8_t * w, step & s, int block) {
        for (int b = 0; b < 2; ++b) {
            V::store(s.scale[block + b], V::load_f16(w + b * 32));
        }
    }

    // Inputs [c0, c1) of the group.
    static void scale(const group & g, int c0, int c1) {
        const auto d = loaded<V, 8>(g.from->scale);
        for (int c = c0; c < c1; ++c) {
            typename V::floats out = V::load(g.acc + c * n_lanes);
#pragma GCC unroll 8
            for (int b = 0; b < 8; ++b) {
                if (b == g.n_blocks) {
                    break;
                }
                const typename V::ints s = V::load_i(g.sums + (b * n_rows + c) * n_lanes);
                out = V::fma(V::to_float(s), V::mul(d.v[b], V::broadcast_f(g.scale + b * g.width + c)), out);
            }
            V::store(g.acc + c * n_lanes, out);
        }
    }
};

template <class V> struct tiles_q8_0 : of_q8<V> {
    static void unpack(const uint8_t * w, step & s, int at) {
        of_q8<V>::scales(w, s, at / 32);
#pragma GCC unroll 4
        for (int i = 0; i < 16; ++i) {
            V::store_bytes(s.codes + at * n_lanes + i * 64, V::less(V::load_bytes(w + 64 + i * 64), 128));
        }
    }
};

template <class V, bool table> struct tiles_q4 : of_q8<V> {
    static void unpack(const uint8_t * w, step & s, int at) {
        of_q8<V>::scales(w, s, at / 32);
        uint8_t * out = s.codes + at * n_lanes;
#pragma GCC unroll 4
        for (int i = 0; i < 8; ++i, out += 128) {
            const typename V::bytes v  = V::load_bytes(w + 64 + i * 64);
            typename V::bytes       lo = V::low(v);
            typename V::bytes       hi = V::high(v);
            if constexpr (table) {
                lo = V::look_up(lo);
                hi = V::look_up(hi);
            }
            V::store_bytes(out, V::less(lo, table ? 128 : 8));
            V::store_bytes(out + 64, V::less(hi, table ? 128 : 8));
        }
    }
};

template <class V, bool fifth> struct tiles_q45_k {
    static constexpr int n_block = 32;
    static constexpr int n_rows  = n_tile_rows;

    static void unpack(const uint8_t * w, step & s, int) {
        alignas(64) uint8_t sc[128];
        alignas(64) uint8_t least[128];
        unpack_scales(w + 64, sc, least);
        V::store(s.d, V::load_f16(w));
        V::store(s.d_min, V::load_f16(w + 32));
        for (int b = 0; b < 4; ++b) {
            V::store_i(s.least[b], V::load_pairs(least + b * 32, least + b * 32 + 16));
        }
        for (int b = 0; b < 8; ++b) {
            V::store(s.scale[b], V::load_u8(sc + b * 16));
            const uint8_t *                    q   = w + 256 + b * (fifth ? 320 : 256);
            uint8_t *                          out = s.codes + b * 32 * n_lanes;
            [[maybe_unused]] typename V::bytes h;
            if constexpr (fifth) {
                h = V::load_bytes(q + 256);
            }
            unrolled<4>([&](auto part) __attribute__((always_inline)) {
                constexpr int           i  = decltype(part)::value;
                const typename V::bytes v  = V::load_bytes(q + i * 64);
                typename V::bytes       lo = V::low(v);
                typename V::bytes       hi = V::high(v);
                if constexpr (fifth) {
                    lo = V::template add_bits<0x10, 4 - 2 * i>(lo, h);
                    hi = V::template add_bits<0x10, 3 - 2 * i>(hi, h);
                }
                V::store_bytes(out + i * 128, lo);
                V::store_bytes(out + i * 128 + 64, hi);
            });
        }
    }

    static void scale(const group & g, int c0, int c1) {
        const auto d = loaded<V, 8>(g.from->scale);
        for (int c = c0; c < c1; ++c) {
            const typename V::floats part = scaled<V, 8, n_rows>(g, c, d);
            typename V::ints         low  = V::zero_i();
            for (int b = 0; b < 4; ++b) {
                low = V::dot_pairs(low, V::load_i(g.from->least[b]), g.pairs + b * g.width + c);
            }
            const typename V::floats dx  = V::broadcast_f(g.scale + c);
            typename V::floats       out = V::load(g.acc + c * n_lanes);
            out                          = V::fma(part, V::mul(V::load(g.from->d), dx), out);
            out                          = V::fnma(V::to_float(low), V::mul(V::load(g.from->d_min), dx), out);
            V::store(g.acc + c * n_lanes, out);
        }
    }
};

template <class V> struct tiles_q6_k {
    static constexpr int n_block = 16;
    static constexpr int n_rows  = n_tile_rows_q6_k;

    static void unpack(const uint8_t * w, step & s, int) {
        V::store(s.d, V::load_f16(w));
        for (int b = 0; b < 16; ++b) {
            V::store(s.scale[b], V::load_s8(w + 64 + b * 16));
            const uint8_t *         q   = w + 320 + b * 192;
            uint8_t *               out = s.codes + b * 16 * n_lanes;
            const typename V::bytes h   = V::load_bytes(q + 128);
            unrolled<2>([&](auto part) __attribute__((always_inline)) {
                constexpr int           i = decltype(part)::value;
                const typename V::bytes v = V::load_bytes(q + i * 64);
                V::store_bytes(out + i * 128, V::less(V::template add_bits<0x30, 4 - 4 * i>(V::low(v), h), 32));
                V::store_bytes(out + i * 128 + 64, V::less(V::template add_bits<0x30, 2 - 4 * i>(V::high(v), h), 32));
            });
        }
    }

    static void scale(const group & g, int c0, int c1) {
        const auto d = loaded<V, 16>(g.from->scale);
        for (int c = c0; c < c1; ++c) {
            const typename V::floats part = scaled<V, 16, n_rows>(g, c, d);
            const typename V::floats out  = V::load(g.acc + c * n_lanes);
            V::store(g.acc + c * n_lanes, V::fma(part, V::mul(V::load(g.from->d), V::broadcast_f(g.scale + c)), out));
        }
    }
};

// Blocks b and b + 1 of a step times a group of inputs, whose codes begin at x.
template <class T, class F> void multiply_two(const step & s, const int8_t * x, int64_t width, int b, group & g) {
    unrolled<2>([&](auto part) __attribute__((always_inline)) {
        constexpr int i = decltype(part)::value;
        const int     k = (b + i) * F::n_block;
        T::template zero<i>();
        T::template load<2 + i>(x + k / 32 * 32 * width + k % 32, 32);
        T::template load<4 + i>(s.codes + k * n_lanes, 64);
        T::template dot_codes<i, 2 + i, 4 + i>();
        T::template store<i>(g.sums + (b + i) * F::n_rows * n_lanes, 64);
    });
}

// Lines that the step after the next will need: there are too many of them for the processor's own prefetcher to be
// sure.
inline void prefetch_lines(const uint8_t * p, size_t n) {
    for (size_t i = 0; i < n; i += 64) {
        __builtin_prefetch(p + i, 0, 2);
    }
}

template <class V, class T, class F, format f>
void panel_tiles(const uint8_t * w, const tile & x, int64_t k0, int64_t n_k, float * acc) {
    constexpr const format_traits & t        = traits_of(f);
    const int                       n_rows   = tile_rows(f, x.width);
    const auto *                    codes    = static_cast<const int8_t *>(x.codes);
    const auto                      width    = int64_t(x.width);
    const auto                      bytes_of = [&](int64_t n) { return n / t.n_unit * t.n_unit_bytes; };
    const auto                      unpack   = [&](int64_t k, step & s) {
        for (int at = 0; at < n_step && k + at < n_k; at += t.n_unit) {
            F::unpack(w + bytes_of(k + at), s, at);
        }
    };
    step    steps[2];
    group   groups[2];
    int     i      = 0;
    group * before = &groups[1];
    before->from   = &steps[0];
    before->n      = 0;
    unpack(0, steps[0]);
    for (int64_t k = 0; k < n_k; k += n_step) {
        const step & s        = steps[k / n_step % 2];
        const int    n_blocks = int(n_k - k < n_step ? n_k - k : n_step) / F::n_block;
        for (int c = 0; c < x.width; c += n_rows, i = 1 - i) {
            group & g  = groups[i];
            g.from     = &s;
            g.scale    = x.scale + (k0 + k) / (t.n_unit == 256 ? 256 : 32) * width + c;
            g.pairs    = x.pairs + (k0 + k) / 64 * width + c;
            g.acc      = acc + c * n_lanes;
            g.n        = c + n_rows < x.width ? n_rows : x.width - c;
            g.width    = width;
            g.n_blocks = n_blocks;
            for (int b = 0; b < n_blocks; b += 2) {
                multiply_two<T, F>(s, codes + (k0 + k) * width + c * 32, width, b, g);
                if (c == 0) {
                    const size_t n = size_t(bytes_of(n_step)) * 2 / size_t(n_step / F::n_block);
                    prefetch_lines(w + bytes_of(k + 2 * n_step) + size_t(b / 2) * n, n);
                }
                F::scale(*before, before->n * b / n_blocks, before->n * (b + 2) / n_blocks);
            }
            before = &g;
            if (c == 0 && k + n_step < n_k) { // now that nobody needs what the other one holds
                unpack(k + n_step, steps[(k / n_step + 1) % 2]);
            }
        }
    }
    F::scale(*before, 0, before->n);
}

// Sums stay in tiles for all columns; each group has two, for even and odd runs of 32, so that one does not wait for
// the other. As a tile product rounds in its own way, single inputs take it too.
template <class V, class T>
void panel_tiles_bf16(const uint8_t * w, const tile & x, int64_t k0, int64_t n_k, float * acc) {
    const int         n_rows = tile_rows(format::bf16, x.width);
    const bool        second = x.width > n_rows;
    const auto *      codes  = static_cast<const uint8_t *>(x.codes) + k0 * 2 * x.width;
    alignas(64) float sums[4][n_tile_rows * n_lanes];
    T::template zero<0>();
    T::template zero<1>();
    T::template zero<2>();
    T::template zero<3>();
    for (int64_t k = 0; k < n_k; k += 64) {
        unrolled<2>([&](auto part) __attribute__((always_inline)) {
            constexpr int i = decltype(part)::value;
            prefetch_lines(w + 4096, 1024);
            T::template load<6 + i>(w, 64);
            T::template load<4>(codes, 64);
            T::template dot_bf16<i, 4, 6 + i>();
            if (second) {
                T::template load<5>(codes + n_rows * 64, 64);
                T::template dot_bf16<2 + i, 5, 6 + i>();
            }
            w += 1024;
            codes += 64 * x.width;
        });
    }
    T::template store<0>(sums[0], 64);
    T::template store<1>(sums[1], 64);
    T::template store<2>(sums[2], 64);
    T::template store<3>(sums[3], 64);
    for (int c = 0; c < x.width; ++c) {
        const float * s = c < n_rows ? sums[0] + c * n_lanes : sums[2] + (c - n_rows) * n_lanes;
        V::store(acc + c * n_lanes,
                 V::add(V::load(acc + c * n_lanes), V::add(V::load(s), V::load(s + n_tile_rows * n_lanes))));
    }
}

inline void prepare_bf16_rows(const float * x, int64_t k0, int64_t k1, int column, const tile & t) {
    auto * codes = static_cast<uint16_t *>(const_cast<void *>(t.codes));
    for (int64_t k = k0; k < k1; ++k) {
        codes[(k / 32 * t.width + column) * 32 + k % 32] = to_bf16(x[k]);
    }
}

template <class V, class T> constexpr wide_kernels make_wide() {
    wide_kernels k{};
    for (int & n : k.from) {
        n = 5; // counted in instructions, never measured: there the unpacking is paid for
    }
    k.from[int(format::bf16)]           = 1;
    k.panel[int(format::q8_0)]          = panel_tiles<V, T, tiles_q8_0<V>, format::q8_0>;
    k.panel[int(format::q4_0)]          = panel_tiles<V, T, tiles_q4<V, false>, format::q4_0>;
    k.panel[int(format::iq4_nl)]        = panel_tiles<V, T, tiles_q4<V, true>, format::iq4_nl>;
    k.panel[int(format::q4_k)]          = panel_tiles<V, T, tiles_q45_k<V, false>, format::q4_k>;
    k.panel[int(format::q5_k)]          = panel_tiles<V, T, tiles_q45_k<V, true>, format::q5_k>;
    k.panel[int(format::q6_k)]          = panel_tiles<V, T, tiles_q6_k<V>, format::q6_k>;
    k.panel[int(format::bf16)]          = panel_tiles_bf16<V, T>;
    k.prepare[int(input_kind::q8_full)] = prepare_q8<32, 32, 128, false, 32>;
    k.prepare[int(input_kind::q8_four)] = prepare_q8<32, 32, 8, false, 32>;
    k.prepare[int(input_kind::q8_k)]    = prepare_q8<256, 16, 32, true, 32>;
    k.prepare[int(input_kind::bf16)]    = prepare_bf16_rows;
    k.save                              = T::save;
    k.load                              = T::configure;
    k.config_of                         = [](format f, int width) -> const tile_config & {
        return tile_configs.of[shapes_of(f)][tile_rows(f, width) - 1];
    };
    return k;
}

} // namespace
} // namespace duo::cpu
