// The table of one instruction set, from its vector type.
#pragma once

#include "panel.h"
#include "panel_float.h"
#include "panel_k.h"
#include "prepare.h"

namespace duo::cpu {
namespace {

template <class V, int N> constexpr void fill_width(kernel_set & k) {
    k.panel[int(format::q8_0)][N - 1]   = panel_q8_0<V, N>;
    k.panel[int(format::q4_0)][N - 1]   = panel_q4<V, N, false>;
    k.panel[int(format::iq4_nl)][N - 1] = panel_q4<V, N, true>;
    k.panel[int(format::q4_k)][N - 1]   = panel_q45_k<V, N, false>;
    k.panel[int(format::q5_k)][N - 1]   = panel_q45_k<V, N, true>;
    k.panel[int(format::q6_k)][N - 1]   = panel_q6_k<V, N>;
    k.panel[int(format::bf16)][N - 1]   = panel_bf16<V, N>;
    k.panel[int(format::f16)][N - 1]    = panel_f16<V, N>;
    if constexpr (N > 1) {
        fill_width<V, N - 1>(k);
    }
}

template <class V> constexpr kernel_set make_kernels(const char * name) {
    kernel_set k{};
    k.name    = name;
    k.n_width = V::n_width;
    fill_width<V, V::n_width>(k);
    // Where codes of 8 bits are multiplied as signed ones there is no offset to take back.
    constexpr int full                  = V::signed_codes ? 0 : 128;
    k.prepare[int(input_kind::q8_full)] = prepare_q8<32, 32, full, false>;
    k.prepare[int(input_kind::q8_four)] = prepare_q8<32, 32, 8, false>;
    k.prepare[int(input_kind::q8_k)]    = prepare_q8<256, 16, 32, true>;
    k.prepare[int(input_kind::bf16)]    = prepare_bf16;
    k.prepare[int(input_kind::f32)]     = prepare_f32;
    return k;
}

// -128 is added back by the start of the sum, or by the signed product.
alignas(64) constexpr uint8_t iq4_nl_codes[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                  129, 141, 153, 166, 181, 197, 217, 241};

} // namespace
} // namespace duo::cpu
