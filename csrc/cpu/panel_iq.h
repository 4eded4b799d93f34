// Kernels of points of a codebook: IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ1_S, IQ1_M.
#pragma once

#include "base/compiler.h"
#include "codebook.h"
#include "panel.h"

namespace duo::cpu {
namespace {

// The codes of 16 halves of bytes, each plus the offset. Those with the highest bit have a minus, or are other numbers.
struct code_list {
    alignas(64) uint8_t codes[16];

    template <int n> constexpr code_list(int offset, const int (&first)[n], const int (&second)[n]) : codes() {
        for (int i = 0; i < n; ++i) {
            codes[i]     = uint8_t(offset + first[i]);
            codes[i + 8] = uint8_t(offset + second[i]);
        }
    }
};

// IQ2. factor: what a code must be multiplied with, besides 2 * scale + 1 and the unit's scale.
template <format f> struct codes_of_book {
    static constexpr int       bits   = 7;
    static constexpr int       offset = 64;
    static constexpr float     factor = 0.125f;
    static constexpr code_list list{offset, {8, 25, 43}, {-8, -25, -43}};
};
// Half the sizes, which are all even.
template <> struct codes_of_book<format::iq3_xxs> {
    static constexpr int       bits   = 6;
    static constexpr int       offset = 32;
    static constexpr float     factor = 0.5f;
    static constexpr code_list list{offset, {2, 6, 10, 14, 18, 22, 26, 31}, {-2, -6, -10, -14, -18, -22, -26, -31}};
};
template <> struct codes_of_book<format::iq3_s> {
    static constexpr int       bits   = 5;
    static constexpr int       offset = 16;
    static constexpr float     factor = 1.0f;
    static constexpr code_list list{offset, {1, 3, 5, 7, 9, 11, 13, 15}, {-1, -3, -5, -7, -9, -11, -13, -15}};
};
// Eight times -1, 0 and 1, plus or minus one.
struct codes_of_iq1 {
    static constexpr int       bits   = 5;
    static constexpr int       offset = 16;
    static constexpr float     factor = 0.125f;
    static constexpr code_list list{offset, {-7, 1, 9}, {-9, -1, 7}};
};
template <> struct codes_of_book<format::iq1_s> : codes_of_iq1 {};
template <> struct codes_of_book<format::iq1_m> : codes_of_iq1 {};

template <format f> const uint32_t * entries_of_book() {
    switch (f) {
        case format::iq2_xxs:
            return book_iq2_xxs.entries;
        case format::iq2_xs:
            return book_iq2_xs.entries;
        case format::iq2_s:
            return book_iq2_s.entries;
        case format::iq3_xxs:
            return book_iq3_xxs.entries;
        case format::iq3_s:
            return book_iq3_s.entries;
        default:
            return book_iq1.entries;
    }
}

// The upper bits of a block's indices, if there are any: a byte of each row, two with IQ1. Blocks of IQ2_XS share it in
// twos.
template <class V, format f> DUO_INLINE typename V::bytes high_bits(const uint8_t * unit, int block, int lane) {
    constexpr codebook_layout l = codebook_layout_of(f);
    if constexpr (!l.has_signs()) {
        return V::load_two_each(unit + l.high_at() + block * 32 + lane * 2);
    } else {
        return V::load_each(unit + l.high_at() + block * l.n_entries() * l.n_high / 64 * 16 + lane);
    }
}

// Columns 8 i to 8 i + 7 of a block of 32. q: its signs and indices, at the lane; h: the upper bits of the indices;
// odd: the block is the second of two.
template <class V, format f, int i, int odd>
DUO_INLINE eight_columns<V> codes_iq(const uint8_t * q, const typename V::bytes & signs, const typename V::bytes & h) {
    constexpr codebook_layout l     = codebook_layout_of(f);
    constexpr auto &          list  = codes_of_book<f>::list.codes;
    const uint32_t *          table = entries_of_book<f>();
    constexpr int             mask  = ((1 << l.n_high) - 1) << 8;
    if constexpr (!l.has_signs()) {
        const typename V::bytes x = V::template entries<i, mask, 8 - 3 * i>(table, V::load_bytes(q), h);
        const typename V::bytes v = V::template add_where < 0x88, l.has_scales() ? 12 + i : 12 > (x, h);
        return {V::look_up(list, V::low(v)), V::look_up(list, V::high(v))};
    } else if constexpr (l.n_columns == 8) {
        constexpr int           by    = 8 - i * l.n_high - (l.n_high == 1 ? 4 * odd : 0);
        const typename V::bytes sizes = V::template entries<i, mask, by>(table, V::load_bytes(q + 64), h);
        const typename V::bytes v     = V::template add_bits<0x88, i>(sizes, signs);
        return {V::look_up(list, V::low(v)), V::look_up(list, V::high(v))};
    } else {
        constexpr int           at = i % 2 * 2;
        const typename V::bytes x  = V::load_bytes(q + 64 + i / 2 * 64);
        const typename V::bytes lo = V::template entries<at, mask, 8 - 2 * i>(table, x, h);
        const typename V::bytes hi = V::template entries<at + 1, mask, 7 - 2 * i>(table, x, h);
        return {V::look_up(list, V::template add_bits<8, 3 - 2 * i>(lo, signs)),
                V::look_up(list, V::template add_bits<8, 2 - 2 * i>(hi, signs))};
    }
}

// 2 * scale + 1 of 16 rows and all blocks of a unit.
template <format f> inline void unpack_odd_scales(const uint8_t * unit, uint8_t * scale) {
    constexpr codebook_layout l = codebook_layout_of(f);
    constexpr int             n = 8 * l.n_scales;
    if constexpr (!l.has_scales()) { // the upper three of 16 bits
        for (int i = 0; i < 2 * n; ++i) {
            scale[i] = uint8_t((unit[l.high_at() + 2 * i + 1] >> 5) * 2 + 1);
        }
    } else {
        for (int i = 0; i < n; ++i) {
            scale[i]     = uint8_t(2 * (unit[64 + i] & 15) + 1);
            scale[n + i] = uint8_t(2 * (unit[64 + i] >> 4) + 1);
        }
    }
}

// -offset times the sums of inputs, from -32 times those of 16, or -128 times those of 32.
template <format f> DUO_INLINE int32_t start_of(int32_t prepared) {
    return prepared / (codebook_layout_of(f).n_scales == 16 ? 32 : 128) * codes_of_book<f>::offset;
}

template <class V, int N, format f>
void panel_iq(const uint8_t * w0, const tile & x, int64_t k0, int64_t n_k, float * acc) {
    using of                      = codes_of_book<f>;
    constexpr codebook_layout l   = codebook_layout_of(f);
    constexpr int             n_c = 256 / l.n_scales; // columns that share a scale
    for (int lane = 0; lane < n_lanes; lane += V::L) {
        sums<V, N>      out      = load_sums<V, N>(acc, lane);
        const uint8_t * w        = w0;
        const auto *    codes    = static_cast<const int8_t *>(x.codes) + k0 * N;
        const float *   scale    = x.scale + k0 / 256 * N;
        const int32_t * prepared = x.start + k0 / n_c * N;
        for (int64_t k = 0; k < n_k; k += 256, w += traits_of(f).n_unit_bytes, scale += N, prepared += l.n_scales * N) {
            prefetch<l.n_head() / 64>(w, x);
            alignas(64) uint8_t sc[16 * l.n_scales];
            alignas(64) int32_t start[l.n_scales * N];
            unpack_odd_scales<f>(w, sc);
            for (int i = 0; i < l.n_scales * N; ++i) {
                start[i] = start_of<f>(prepared[i]);
            }
            sums<V, N> part = no_sums<V, N>();
            for (int b = 0; b < 8; b += 2) {
                unrolled<2>([&](auto second) DUO_INLINE_LAMBDA {
                    constexpr int   odd = decltype(second)::value;
                    const uint8_t * q   = w + l.n_head() + (b + odd) * l.n_block() + lane * 4;
                    prefetch<l.n_block() / 64>(q, x);
                    const typename V::bytes signs = V::load_bytes(q);
                    const typename V::bytes h     = high_bits<V, f>(w, b + odd, lane);
                    unrolled<32 / n_c>([&](auto run) DUO_INLINE_LAMBDA {
                        constexpr int         r  = decltype(run)::value;
                        const int             j  = (b + odd) * (32 / n_c) + r;
                        const int32_t *       at = start + j * N;
                        block<V, N, of::bits> s;
                        begin(s, at);
                        unrolled<n_c / 8>([&](auto step) DUO_INLINE_LAMBDA {
                            constexpr int          i = decltype(step)::value;
                            const eight_columns<V> c = codes_iq<V, f, r * n_c / 8 + i, odd>(q, signs, h);
                            dot(s, c.lo, c.hi, codes + i * 8 * N);
                            if constexpr (i + 1 < n_c / 8 && (of::bits == 6 || (of::bits == 5 && i == 1))) {
                                settle(s);
                            }
                        });
                        add_scaled<V, N>(part, finish(s, at), V::load_u8(sc + j * 16 + lane));
                        codes += n_c * N;
                    });
                });
            }
            add_scaled<V, N>(out, part, V::mul(V::load_f16(w + lane * 2), V::broadcast_f(&of::factor)), scale);
        }
        store_sums<V, N>(out, acc, lane);
    }
}

} // namespace
} // namespace duo::cpu
