// Kernels on tile registers: a panel's codes are the second operand of a tile product, up to 16 inputs the first.
// Written over a vector type V of 16 lanes and the tile registers T (tile_registers, emulated_tiles).
//
// A step is 256 columns. Their codes are unpacked to signed bytes, once for all inputs. Each block of columns with its
// own scale gives a tile of integer sums. The sums are scaled as in the narrow kernels, so the bits are the same. Tiles
// can only be read through memory, and a product takes some fifty cycles. So the sums of the previous group of inputs
// are scaled while those of the next group are computed.
#pragma once

#include "base/compiler.h"
#include "prepare.h"
#include "tile_formats_iq.h"
#include "tile_formats_tq.h"

namespace duo::cpu {
namespace {

// Multiplies blocks b and b + 1 of a step with a group of inputs, whose codes begin at x.
template <class T, int n> void multiply_two(const step & s, const int8_t * x, int64_t width, int b, group & g) {
    unrolled<2>([&](auto part) DUO_INLINE_LAMBDA {
        constexpr int i = decltype(part)::value;
        const int     k = (b + i) * n;
        T::template zero<i>();
        T::template load<2 + i>(x + k / 32 * 32 * width + k % 32, 32);
        T::template load<4 + i>(s.codes + k * n_lanes, 64);
        T::template dot_codes<i, 2 + i, 4 + i>();
        T::template store<i>(g.sums + (b + i) * n_tile_rows * n_lanes, 64);
    });
}

// Like prefetch() in panel.h, for the bytes of a run of tiles.
inline void prefetch_lines(const uint8_t * p, size_t n) {
    for (size_t i = 0; i < n; i += 64) {
        DUO_PREFETCH_2(p + i);
    }
}

// Bytes of n columns of a panel.
template <format f> constexpr int64_t bytes_of(int64_t n) {
    return n / traits_of(f).n_unit * traits_of(f).n_unit_bytes;
}

template <class V, class T, class F, format f>
void panel_tiles(const uint8_t * w, const tile & x, int64_t k0, int64_t n_k, float * acc) {
    constexpr const format_traits & t       = traits_of(f);
    constexpr int                   n_block = tile_columns(f);
    const int                       n_rows  = tile_rows(x.width);
    const auto *                    codes   = static_cast<const int8_t *>(x.codes);
    const auto                      width   = int64_t(x.width);
    const auto                      unpack  = [&](int64_t k, step & s) {
        for (int at = 0; at < n_step && k + at < n_k; at += t.n_unit) {
            F::unpack(w + bytes_of<f>(k + at), s, at);
        }
    };
    step    steps[2];
    group   groups[2];
    int     i        = 0;
    group * before   = &groups[1];
    before->from     = &steps[0];
    before->n        = 0;
    before->n_blocks = 0;
    unpack(0, steps[0]);
    for (int64_t k = 0; k < n_k; k += n_step) {
        const step & s        = steps[k / n_step % 2];
        const int    n_blocks = int(n_k - k < n_step ? n_k - k : n_step) / n_block;
        for (int c = 0; c < x.width; c += n_rows, i = 1 - i) {
            group & g        = groups[i];
            g.from           = &s;
            g.scale          = x.scale + (k0 + k) / (t.n_unit == 256 ? 256 : 32) * width + c;
            g.pairs          = x.pairs + (k0 + k) / 64 * width + c;
            g.total          = x.total + (k0 + k) / 32 * width + c;
            g.acc            = acc + c * n_lanes;
            g.n              = c + n_rows < x.width ? n_rows : x.width - c;
            g.width          = width;
            g.n_blocks       = n_blocks;
            const int n_some = (before->n * 2 + n_blocks - 1) / n_blocks;
            for (int b = 0, done = 0; b < n_blocks; b += 2) {
                multiply_two<T, n_block>(s, codes + (k0 + k) * width + c * 32, width, b, g);
                if (c == 0) {
                    constexpr size_t n = size_t(bytes_of<f>(n_step)) * 2 / size_t(n_step / n_block);
                    prefetch_lines(w + bytes_of<f>(k + n_step) + size_t(b / 2) * n + x.ahead, n);
                }
                const int to = done + n_some < before->n ? done + n_some : before->n;
                if (done < to) { // the first group has no predecessor
                    F::scale(*before, done, to);
                }
                done = to;
            }
            before = &g;
            if (c == 0 && k + n_step < n_k) { // the other step is no longer needed
                unpack(k + n_step, steps[(k / n_step + 1) % 2]);
            }
        }
    }
    F::scale(*before, 0, before->n);
}

// Sums stay in tiles for all columns. Each group has two sums, for even and odd runs of 32, so that one does not wait
// for the other. A tile product rounds in its own way, so single inputs use it too.
template <class V, class T>
void panel_tiles_bf16(const uint8_t * w, const tile & x, int64_t k0, int64_t n_k, float * acc) {
    const int         n_rows = tile_rows(x.width);
    const bool        second = x.width > n_rows;
    const auto *      codes  = static_cast<const uint8_t *>(x.codes) + k0 * 2 * x.width;
    constexpr int     n_sums = n_tile_rows * n_lanes;
    alignas(64) float sums[4 * n_sums];
    T::template zero<0>();
    T::template zero<1>();
    T::template zero<2>();
    T::template zero<3>();
    for (int64_t k = 0; k < n_k; k += 64) {
        unrolled<2>([&](auto part) DUO_INLINE_LAMBDA {
            constexpr int i = decltype(part)::value;
            prefetch_lines(w + x.ahead, 1024);
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
    T::template store<0>(sums, 64);
    T::template store<1>(sums + 1 * n_sums, 64);
    T::template store<2>(sums + 2 * n_sums, 64);
    T::template store<3>(sums + 3 * n_sums, 64);
    for (int c = 0; c < x.width; ++c) {
        const float * s = sums + (c < n_rows ? c * n_lanes : 2 * n_sums + (c - n_rows) * n_lanes);
        V::store(acc + c * n_lanes, V::add(V::load(acc + c * n_lanes), V::add(V::load(s), V::load(s + n_sums))));
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
        n = 9; // VNNI takes up to 8 inputs at once. Measured: up to 8 it is faster, from 9 on AMX is
    }
    k.from[int(format::bf16)]             = 1;
    k.panel[int(format::q8_0)]            = panel_tiles<V, T, tiles_q8_0<V>, format::q8_0>;
    k.panel[int(format::q4_0)]            = panel_tiles<V, T, tiles_q4<V, code_table::none>, format::q4_0>;
    k.panel[int(format::q4_1)]            = panel_tiles<V, T, tiles_q45<V, false, true>, format::q4_1>;
    k.panel[int(format::q5_0)]            = panel_tiles<V, T, tiles_q45<V, true, false>, format::q5_0>;
    k.panel[int(format::q5_1)]            = panel_tiles<V, T, tiles_q45<V, true, true>, format::q5_1>;
    k.panel[int(format::iq4_nl)]          = panel_tiles<V, T, tiles_q4<V, code_table::iq4_nl>, format::iq4_nl>;
    k.panel[int(format::mxfp4)]           = panel_tiles<V, T, tiles_q4<V, code_table::mxfp4>, format::mxfp4>;
    k.panel[int(format::iq4_xs)]          = panel_tiles<V, T, tiles_iq4_xs<V>, format::iq4_xs>;
    k.panel[int(format::iq2_xxs)]         = panel_tiles<V, T, tiles_iq<V, format::iq2_xxs>, format::iq2_xxs>;
    k.panel[int(format::iq3_xxs)]         = panel_tiles<V, T, tiles_iq<V, format::iq3_xxs>, format::iq3_xxs>;
    k.panel[int(format::iq3_s)]           = panel_tiles<V, T, tiles_iq<V, format::iq3_s>, format::iq3_s>;
    k.panel[int(format::iq1_s)]           = panel_tiles<V, T, tiles_iq<V, format::iq1_s>, format::iq1_s>;
    k.panel[int(format::tq1_0)]           = panel_tiles<V, T, tiles_tq<V, format::tq1_0>, format::tq1_0>;
    k.panel[int(format::tq2_0)]           = panel_tiles<V, T, tiles_tq<V, format::tq2_0>, format::tq2_0>;
    k.panel[int(format::iq2_xs)]          = panel_tiles<V, T, tiles_iq<V, format::iq2_xs>, format::iq2_xs>;
    k.panel[int(format::iq2_s)]           = panel_tiles<V, T, tiles_iq<V, format::iq2_s>, format::iq2_s>;
    k.panel[int(format::iq1_m)]           = panel_tiles<V, T, tiles_iq<V, format::iq1_m>, format::iq1_m>;
    k.panel[int(format::q4_k)]            = panel_tiles<V, T, tiles_q45_k<V, false>, format::q4_k>;
    k.panel[int(format::q5_k)]            = panel_tiles<V, T, tiles_q45_k<V, true>, format::q5_k>;
    k.panel[int(format::bf16)]            = panel_tiles_bf16<V, T>;
    k.prepare[int(input_kind::q8_full)]   = prepare_q8<32, 32, 128, sums_kind::none, 32>;
    k.prepare[int(input_kind::q8_four)]   = prepare_q8<32, 32, 8, sums_kind::none, 32>;
    k.prepare[int(input_kind::q8_five)]   = prepare_q8<32, 32, 16, sums_kind::none, 32>;
    k.prepare[int(input_kind::q8_sums)]   = prepare_q8<32, 0, 0, sums_kind::total, 32>;
    k.prepare[int(input_kind::q8_k)]      = prepare_q8<256, 16, 32, sums_kind::pairs, 32>;
    k.prepare[int(input_kind::q8_k_full)] = prepare_q8<256, 32, 128, sums_kind::none, 32>;
    k.prepare[int(input_kind::bf16)]      = prepare_bf16_rows;
    k.save                                = T::save;
    k.load                                = T::configure;
    k.config_of                           = [](format f, int width) -> const tile_config & {
        return tile_configs.of[shapes_of(f)][tile_rows(width) - 1];
    };
    return k;
}

} // namespace
} // namespace duo::cpu
