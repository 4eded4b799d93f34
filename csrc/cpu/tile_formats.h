// The parts of panel_tiles.h that depend on the format: unpacking 256 columns of a panel to signed bytes, and scaling
// tiles of integer sums. The arithmetic is that of panel.h and panel_k.h, in the same order.
#pragma once

#include "base/compiler.h"
#include "panel_k.h"
#include "tile_registers.h"

namespace duo::cpu {
namespace {

constexpr int n_step        = 256; // columns
constexpr int n_blocks_most = 16;  // of a step: tile products

struct alignas(64) step {
    uint8_t codes[n_step * n_lanes];       // signed, as in a panel
    float   scale[n_blocks_most][n_lanes]; // of each block
    float   minimum[8][n_lanes];           // Q4_1, Q5_1
    float   d[n_lanes];                    // K-quants: of the step
    float   d_min[n_lanes];
    int32_t least[4][n_lanes]; // Q4_K, Q5_K: the minima of blocks, in pairs
};

// Sums of a step's blocks for a group of inputs, and their scales.
struct group {
    const step *    from;
    const float *   scale; // of the inputs
    const int32_t * pairs;
    const float *   total;
    float *         acc;
    int             n; // inputs
    int64_t         width;
    int             n_blocks;
    alignas(64) int32_t sums[n_blocks_most * n_tile_rows * n_lanes];
};

template <class V, int n> inline sums<V, n> loaded(const float (*rows)[n_lanes]) {
    sums<V, n> out;
    DUO_UNROLL(16)
    for (int b = 0; b < n; ++b) {
        out.v[b] = V::load(rows[b]);
    }
    return out;
}

// One input's sums of the n blocks of a K-quant, times the blocks' scales d.
template <class V, int n> inline typename V::floats scaled(const int32_t * s, const sums<V, n> & d) {
    typename V::floats part = V::zero();
    DUO_UNROLL(16)
    for (int b = 0; b < n; ++b) {
        part = V::fma(V::to_float(V::load_i(s + b * n_tile_rows * n_lanes)), d.v[b], part);
    }
    return part;
}

// A format's part: converts the bytes of a unit to signed codes and scales, and sums to floats.
template <class V, bool with_minima = false, code_table table = code_table::none> struct of_q8 {
    static void scales(const uint8_t * w, step & s, int block) {
        for (int b = 0; b < 2; ++b) {
            V::store(s.scale[block + b], scale_q4<V, table>(w + b * 32));
            if constexpr (with_minima) {
                V::store(s.minimum[block + b], V::load_f16(w + 64 + b * 32));
            }
        }
    }

    // Scales the sums of inputs [c0, c1) of the group.
    static void scale(const group & g, int c0, int c1) {
        if (g.n_blocks == 8) {
            return scale_blocks<8>(g, 0, c0, c1);
        }
        for (int b = 0; b < g.n_blocks; b += 2) {
            scale_blocks<2>(g, b, c0, c1);
        }
    }

  private:
    template <int n> static void scale_blocks(const group & g, int b0, int c0, int c1) {
        const auto                  d = loaded<V, n>(g.from->scale + b0);
        [[maybe_unused]] sums<V, n> least;
        if constexpr (with_minima) {
            least = loaded<V, n>(g.from->minimum + b0);
        }
        const int64_t width = g.width;
        for (int64_t c = c0; c < c1; ++c) {
            float *            acc = g.acc + c * n_lanes;
            const int32_t *    s   = g.sums + (b0 * n_tile_rows + c) * n_lanes;
            const float *      x   = g.scale + b0 * width + c;
            typename V::floats out = V::load(acc);
            DUO_UNROLL(8)
            for (int b = 0; b < n; ++b) {
                out = V::fma(V::to_float(V::load_i(s + b * n_tile_rows * n_lanes)),
                             V::mul(d.v[b], V::broadcast_f(x + b * width)), out);
                if constexpr (with_minima) {
                    out = V::fma(least.v[b], V::broadcast_f(g.total + (b0 + b) * width + c), out);
                }
            }
            V::store(acc, out);
        }
    }
};

template <class V> struct tiles_q8_0 : of_q8<V> {
    static void unpack(const uint8_t * w, step & s, int at) {
        of_q8<V>::scales(w, s, at / 32);
        DUO_UNROLL(4)
        for (int i = 0; i < 16; ++i) {
            V::store_bytes(s.codes + at * n_lanes + i * 64, V::less(V::load_bytes(w + 64 + i * 64), 128));
        }
    }
};

// Writes the codes of n vectors of four bits at q, less their offset.
template <class V, code_table table, int n> DUO_INLINE void unpack_q4(const uint8_t * q, uint8_t * out) {
    DUO_UNROLL(4)
    for (int i = 0; i < n; ++i, out += 128) {
        const eight_columns<V> c = codes_q4<V, table>(q + i * 64);
        V::store_bytes(out, V::less(c.lo, table_of<table>::offset));
        V::store_bytes(out + 64, V::less(c.hi, table_of<table>::offset));
    }
}

template <class V, code_table table> struct tiles_q4 : of_q8<V, false, table> {
    static void unpack(const uint8_t * w, step & s, int at) {
        of_q8<V, false, table>::scales(w, s, at / 32);
        unpack_q4<V, table, 8>(w + 64, s.codes + at * n_lanes);
    }
};

// Writes the codes of a block of 32 columns at q, less their offset.
template <class V, bool fifth, int offset> DUO_INLINE void unpack_q45(const uint8_t * q, uint8_t * out) {
    [[maybe_unused]] typename V::bytes h;
    if constexpr (fifth) {
        h = V::load_bytes(q + 256);
    }
    unrolled<4>([&](auto part) DUO_INLINE_LAMBDA {
        constexpr int          i = decltype(part)::value;
        const eight_columns<V> c = codes_q45<V, fifth, i>(q, h);
        V::store_bytes(out + i * 128, offset == 0 ? c.lo : V::less(c.lo, offset));
        V::store_bytes(out + i * 128 + 64, offset == 0 ? c.hi : V::less(c.hi, offset));
    });
}

template <class V, bool fifth, bool with_minima> struct tiles_q45 : of_q8<V, with_minima> {
    static void unpack(const uint8_t * w, step & s, int at) {
        of_q8<V, with_minima>::scales(w, s, at / 32);
        for (int b = 0; b < 2; ++b) {
            unpack_q45<V, fifth, with_minima ? 0 : 16>(w + (with_minima ? 128 : 64) + b * (fifth ? 320 : 256),
                                                       s.codes + (at + b * 32) * n_lanes);
        }
    }
};

template <class V, bool fifth> struct tiles_q45_k {
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
            unpack_q45<V, fifth, 0>(w + 256 + b * (fifth ? 320 : 256), s.codes + b * 32 * n_lanes);
        }
    }

    static void scale(const group & g, int c0, int c1) {
        const auto               scales = loaded<V, 8>(g.from->scale);
        const typename V::floats d      = V::load(g.from->d);
        const typename V::floats d_min  = V::load(g.from->d_min);
        const int64_t            width  = g.width;
        ints<V, 4>               least;
        DUO_UNROLL(4)
        for (int b = 0; b < 4; ++b) {
            least.v[b] = V::load_i(g.from->least[b]);
        }
        for (int64_t c = c0; c < c1; ++c) {
            float *                  acc  = g.acc + c * n_lanes;
            const typename V::floats part = scaled<V, 8>(g.sums + c * n_lanes, scales);
            typename V::ints         low  = V::zero_i();
            DUO_UNROLL(4)
            for (int b = 0; b < 4; ++b) {
                low = V::dot_pairs(low, least.v[b], g.pairs + b * width + c);
            }
            const typename V::floats dx  = V::broadcast_f(g.scale + c);
            const typename V::floats out = V::fma(part, V::mul(d, dx), V::load(acc));
            V::store(acc, V::fnma(V::to_float(low), V::mul(d_min, dx), out));
        }
    }
};

// n blocks, each with a scale, and no minima.
template <class V, int n> struct of_scales {
    static void scale(const group & g, int c0, int c1) {
        const auto               scales = loaded<V, n>(g.from->scale);
        const typename V::floats d      = V::load(g.from->d);
        for (int64_t c = c0; c < c1; ++c) {
            float *                  acc  = g.acc + c * n_lanes;
            const typename V::floats part = scaled<V, n>(g.sums + c * n_lanes, scales);
            V::store(acc, V::fma(part, V::mul(d, V::broadcast_f(g.scale + c)), V::load(acc)));
        }
    }
};

template <class V> struct tiles_iq4_xs : of_scales<V, 8> {
    static void unpack(const uint8_t * w, step & s, int) {
        V::store(s.d, V::load_f16(w));
        for (int b = 0; b < 8; ++b) {
            V::store(s.scale[b], V::load_s8(w + 64 + b * 16));
        }
        unpack_q4<V, code_table::iq4_nl, 32>(w + 192, s.codes);
    }
};

} // namespace
} // namespace duo::cpu
