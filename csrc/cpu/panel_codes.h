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

// What codes of four bits are: numbers, or indices into a table of codes.
enum class code_table : uint8_t { none, iq4_nl, mxfp4 };

// Codes, plus an offset, which the start of the sum removes again.
template <code_table> struct table_of {
    static constexpr int bits   = 4;
    static constexpr int offset = 8;
};
template <> struct table_of<code_table::iq4_nl> {
    static constexpr int bits                      = 8;
    static constexpr int offset                    = 128;
    alignas(64) static constexpr uint8_t codes[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                      129, 141, 153, 166, 181, 197, 217, 241};
};
template <> struct table_of<code_table::mxfp4> { // twice the numbers of E2M1
    static constexpr int bits                      = 5;
    static constexpr int offset                    = 16;
    alignas(64) static constexpr uint8_t codes[16] = {16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4};
};

// Q4_0, IQ4_NL, MXFP4, IQ4_XS. q: 64 bytes of eight columns, at the lane.
template <class V, code_table table> DUO_INLINE eight_columns<V> codes_q4(const uint8_t * q) {
    const typename V::bytes v = V::load_bytes(q);
    if constexpr (table == code_table::none) {
        return {V::low(v), V::high(v)};
    } else {
        return {V::look_up(table_of<table>::codes, V::low(v)), V::look_up(table_of<table>::codes, V::high(v))};
    }
}

// The scales of 16 rows of a block of 32. MXFP4's are powers of two, which bf16 holds.
template <class V, code_table table> DUO_INLINE typename V::floats scale_q4(const uint8_t * p) {
    if constexpr (table == code_table::mxfp4) {
        return V::load_bf16(p);
    } else {
        return V::load_f16(p);
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

// Q2_K: columns 8 i to 8 i + 7 of a block of 16, whose codes are v.
template <class V, int i> DUO_INLINE eight_columns<V> codes_q2_k(const typename V::bytes & v) {
    return {V::template bits<3, -4 * i>(v), V::template bits<3, -4 * i - 2>(v)};
}

// Q3_K: the same for columns 8 i to 8 i + 7 of 32. Bit j of a byte of h is the third bit of the code in vector j.
template <class V, int i>
DUO_INLINE eight_columns<V> codes_q3_k(const typename V::bytes & v, const typename V::bytes & h) {
    const eight_columns<V> c = codes_q2_k<V, i % 2>(v);
    return {V::template add_bits<4, 2 - 2 * i>(c.lo, h), V::template add_bits<4, 1 - 2 * i>(c.hi, h)};
}

// Q6_K: columns 8 i to 8 i + 7 of a block at q. h: the upper two bits of all its codes.
template <class V, int i> DUO_INLINE eight_columns<V> codes_q6_k(const uint8_t * q, const typename V::bytes & h) {
    const typename V::bytes v = V::load_bytes(q + i * 64);
    return {V::template add_bits<0x30, 4 - 4 * i>(V::low(v), h), V::template add_bits<0x30, 2 - 4 * i>(V::high(v), h)};
}

} // namespace
} // namespace duo::cpu
