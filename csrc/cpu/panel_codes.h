// The codes of a packed panel, for the narrow kernels (panel.h, panel_k.h) and for tiles (tile_formats.h).
#pragma once

#include "base/compiler.h"
#include "kernel.h"

namespace duo::cpu {
namespace {

// Codes of eight columns, four of each lane in a vector.
template <class V> struct eight_columns {
    typename V::bytes lo, hi;
};

// Q4_0 and IQ4_NL (table: the codes are indices). q: 64 bytes of eight columns, at the lane.
template <class V, bool table> DUO_INLINE eight_columns<V> codes_q4(const uint8_t * q) {
    const typename V::bytes v = V::load_bytes(q);
    if constexpr (table) {
        return {V::look_up(V::low(v)), V::look_up(V::high(v))};
    } else {
        return {V::low(v), V::high(v)};
    }
}

// Q4_K, Q5_K, Q4_1, Q5_0, Q5_1: columns 8 i to 8 i + 7 of a block at q. Bit j of a byte of h is the fifth bit of the
// code in vector j.
template <class V, bool fifth, int i>
DUO_INLINE eight_columns<V> codes_q45(const uint8_t * q, [[maybe_unused]] const typename V::bytes & h) {
    const typename V::bytes v = V::load_bytes(q + i * 64);
    if constexpr (fifth) {
        return {V::template add_bits<0x10, 4 - 2 * i>(V::low(v), h),
                V::template add_bits<0x10, 3 - 2 * i>(V::high(v), h)};
    } else {
        return {V::low(v), V::high(v)};
    }
}

// Q6_K: columns 8 i to 8 i + 7 of a block at q. h: the upper two bits of all its codes.
template <class V, int i> DUO_INLINE eight_columns<V> codes_q6_k(const uint8_t * q, const typename V::bytes & h) {
    const typename V::bytes v = V::load_bytes(q + i * 64);
    return {V::template add_bits<0x30, 4 - 4 * i>(V::low(v), h), V::template add_bits<0x30, 2 - 4 * i>(V::high(v), h)};
}

} // namespace
} // namespace duo::cpu
