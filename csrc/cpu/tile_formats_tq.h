// Tiles of the ternary types. Sums of blocks are small integers, so adding them as floats rounds nothing.
#pragma once

#include "base/compiler.h"
#include "panel_tq.h"
#include "tile_formats.h"

namespace duo::cpu {
namespace {

template <class V, format f> struct tiles_tq : of_scales<V, 8> {
    static void unpack(const uint8_t * w, step & s, int) {
        static constexpr float one = 1.0f;
        V::store(s.d, V::load_f16(w));
        for (int b = 0; b < 8; ++b) {
            V::store(s.scale[b], V::broadcast_f(&one));
        }
        each_eight_tq<V, f>(w + 64, [&](const auto & lo, const auto & hi, int column) DUO_INLINE_LAMBDA {
            V::store_bytes(s.codes + column * n_lanes, V::less(lo, 1));
            V::store_bytes(s.codes + column * n_lanes + 64, V::less(hi, 1));
        });
    }
};

} // namespace
} // namespace duo::cpu
