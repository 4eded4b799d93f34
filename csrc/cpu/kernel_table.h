// The table of one instruction set, from its vector type.
#pragma once

#include <type_traits>

#include "attend.h"
#include "direct.h"
#include "panel.h"
#include "panel_float.h"
#include "panel_iq.h"
#include "panel_k.h"
#include "panel_q23_k.h"
#include "panel_q45.h"
#include "panel_tq.h"
#include "prepare.h"
#include "quantise_blocks.h"
#include "twice.h"

namespace duo::cpu {
namespace {

// The vector type for N inputs. If a vector holds half a panel, two inputs still leave registers for the other half.
template <class V, int N> struct type_for {
    using type = std::conditional_t<V::L == n_lanes || (N > 2), V, twice<V>>;
};

// Number of adjacent codes of an input in a tile.
template <class V> constexpr int together() {
    if constexpr (requires { V::n_together; }) {
        return V::n_together;
    } else {
        return 4;
    }
}

// The kernels of width N, and of all narrower ones.
template <class V, int N> constexpr void fill_widths(kernel_set & k) {
    using W = typename type_for<V, N>::type;

    k.panel[int(format::q8_0)][N - 1]    = panel_q8_0<W, N>;
    k.panel[int(format::q4_0)][N - 1]    = panel_q4<W, N, code_table::none>;
    k.panel[int(format::q4_1)][N - 1]    = panel_q45<W, N, false, true>;
    k.panel[int(format::q5_0)][N - 1]    = panel_q45<W, N, true, false>;
    k.panel[int(format::q5_1)][N - 1]    = panel_q45<W, N, true, true>;
    k.panel[int(format::iq4_nl)][N - 1]  = panel_q4<W, N, code_table::iq4_nl>;
    k.panel[int(format::mxfp4)][N - 1]   = panel_q4<W, N, code_table::mxfp4>;
    k.panel[int(format::q2_k)][N - 1]    = panel_q2_k<W, N>;
    k.panel[int(format::q3_k)][N - 1]    = panel_q3_k<W, N>;
    k.panel[int(format::q4_k)][N - 1]    = panel_q45_k<W, N, false>;
    k.panel[int(format::q5_k)][N - 1]    = panel_q45_k<W, N, true>;
    k.panel[int(format::q6_k)][N - 1]    = panel_q6_k<W, N>;
    k.panel[int(format::iq4_xs)][N - 1]  = panel_iq4_xs<W, N>;
    k.panel[int(format::iq2_xxs)][N - 1] = panel_iq<W, N, format::iq2_xxs>;
    k.panel[int(format::iq2_xs)][N - 1]  = panel_iq<W, N, format::iq2_xs>;
    k.panel[int(format::iq2_s)][N - 1]   = panel_iq<W, N, format::iq2_s>;
    k.panel[int(format::iq3_xxs)][N - 1] = panel_iq<W, N, format::iq3_xxs>;
    k.panel[int(format::iq3_s)][N - 1]   = panel_iq<W, N, format::iq3_s>;
    k.panel[int(format::iq1_s)][N - 1]   = panel_iq<W, N, format::iq1_s>;
    k.panel[int(format::iq1_m)][N - 1]   = panel_iq<W, N, format::iq1_m>;
    k.panel[int(format::tq1_0)][N - 1]   = panel_tq<W, N, format::tq1_0>;
    k.panel[int(format::tq2_0)][N - 1]   = panel_tq<W, N, format::tq2_0>;
    k.panel[int(format::bf16)][N - 1]    = panel_bf16<W, N>;
    k.panel[int(format::f16)][N - 1]     = panel_float<W, N, 2>;
    k.panel[int(format::f32)][N - 1]     = panel_float<W, N, 4>;
    if constexpr (N > 1) {
        fill_widths<V, N - 1>(k);
    }
}

template <class V> constexpr kernel_set make_kernels(const char * name) {
    kernel_set k{};
    k.name    = name;
    k.n_width = V::n_width;
    fill_widths<V, V::n_width>(k);
    k.prepare[int(input_kind::q8_full)]   = prepare_q8<32, 32, 128, sums_kind::none, together<V>()>;
    k.prepare[int(input_kind::q8_four)]   = prepare_q8<32, 32, 8, sums_kind::none, together<V>()>;
    k.prepare[int(input_kind::q8_five)]   = prepare_q8<32, 32, 16, sums_kind::none, together<V>()>;
    k.prepare[int(input_kind::q8_sums)]   = prepare_q8<32, 0, 0, sums_kind::total, together<V>()>;
    k.prepare[int(input_kind::q8_k)]      = prepare_q8<256, 16, 32, sums_kind::pairs, together<V>()>;
    k.prepare[int(input_kind::q8_k_full)] = prepare_q8<256, 32, 128, sums_kind::none, together<V>()>;
    k.prepare[int(input_kind::bf16)]      = prepare_bf16;
    k.prepare[int(input_kind::f32)]       = prepare_f32;
    k.attend                              = attend_rows<V>;
    k.quantise                            = quantise_blocks;
    return k;
}

} // namespace
} // namespace duo::cpu
