// Tiles of points of a codebook.
#pragma once

#include "base/compiler.h"
#include "panel_iq.h"
#include "tile_formats.h"

namespace duo::cpu {
namespace {

template <class V, format f> struct tiles_iq : of_scales<V, codebook_layout_of(f).n_scales> {
    static void unpack(const uint8_t * w, step & s, int) {
        constexpr codebook_layout l = codebook_layout_of(f);
        using of                    = codes_of_book<f>;
        alignas(64) uint8_t sc[16 * l.n_scales];
        unpack_odd_scales<f>(w, sc);
        V::store(s.d, V::mul(V::load_f16(w), V::broadcast_f(&of::factor)));
        for (int j = 0; j < l.n_scales; ++j) {
            V::store(s.scale[j], V::load_u8(sc + j * 16));
        }
        for (int b = 0; b < 8; b += 2) {
            unpack_block<0>(w, b, s);
            unpack_block<1>(w, b + 1, s);
        }
    }

  private:
    template <int odd> static void unpack_block(const uint8_t * w, int b, step & s) {
        constexpr codebook_layout l     = codebook_layout_of(f);
        const uint8_t *           q     = w + l.n_head() + b * l.n_block();
        const typename V::bytes   signs = V::load_bytes(q);
        const typename V::bytes   h     = high_bits<V, f>(w, b, 0);
        unrolled<4>([&](auto step) DUO_INLINE_LAMBDA {
            constexpr int          i   = decltype(step)::value;
            uint8_t *              out = s.codes + (b * 32 + i * 8) * n_lanes;
            const eight_columns<V> c   = codes_iq<V, f, i, odd>(q, signs, h);
            V::store_bytes(out, V::less(c.lo, codes_of_book<f>::offset));
            V::store_bytes(out + 64, V::less(c.hi, codes_of_book<f>::offset));
        });
    }
};

} // namespace
} // namespace duo::cpu
