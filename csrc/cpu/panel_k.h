// Kernels of the K-quants: blocks of 256 that contain small scales.
#pragma once

#include "base/compiler.h"
#include "panel.h"

namespace duo::cpu {
namespace {

// The 6-bit scales and minima of 16 rows and 8 blocks of 32, from 192 bytes: see put_scales in repack.cpp.
inline void unpack_scales(const uint8_t * p, uint8_t * scale, uint8_t * least) {
    const uint8_t * h = p + 128;
    for (int i = 0; i < 64; ++i) {
        scale[i]      = uint8_t((p[i] & 15) | ((h[i] & 3) << 4));
        least[i]      = uint8_t((p[i] >> 4) | (((h[i] >> 2) & 3) << 4));
        scale[64 + i] = uint8_t((p[64 + i] & 15) | (((h[i] >> 4) & 3) << 4));
        least[64 + i] = uint8_t((p[64 + i] >> 4) | ((h[i] >> 6) << 4));
    }
}

// Adds a unit's scaled sums, less its minima times the inputs' sums, which come in n pairs. w: the unit, which begins
// with the scales of both.
template <class V, int N, int n>
DUO_INLINE void subtract_minima(sums<V, N> & out, const sums<V, N> & part, const uint8_t * w, const float * scale,
                                const uint8_t * least, const int32_t * pairs, int lane) {
    ints<V, N> low;
    DUO_UNROLL(8)
    for (int c = 0; c < N; ++c) {
        low.v[c] = V::zero_i();
    }
    DUO_UNROLL(8)
    for (int b = 0; b < n; ++b) {
        const typename V::ints m = V::load_pairs(least + b * 32 + lane, least + b * 32 + 16 + lane);
        DUO_UNROLL(8)
        for (int c = 0; c < N; ++c) {
            low.v[c] = V::dot_pairs(low.v[c], m, pairs + b * N + c);
        }
    }
    const typename V::floats d     = V::load_f16(w + lane * 2);
    const typename V::floats d_min = V::load_f16(w + 32 + lane * 2);
    DUO_UNROLL(8)
    for (int c = 0; c < N; ++c) {
        const typename V::floats dx = V::broadcast_f(scale + c);
        out.v[c]                    = V::fma(part.v[c], V::mul(d, dx), out.v[c]);
        out.v[c]                    = V::fnma(V::to_float(low.v[c]), V::mul(d_min, dx), out.v[c]);
    }
}

// Q4_K and Q5_K (with one more bit per code): 8 blocks of 32 with 6-bit scale and minimum.
template <class V, int N, bool fifth>
void panel_q45_k(const uint8_t * w0, const tile & x, int64_t k0, int64_t n_k, float * acc) {
    constexpr int n_unit_bytes = fifth ? 2816 : 2304;
    constexpr int bits         = fifth ? 5 : 4;
    for (int lane = 0; lane < n_lanes; lane += V::L) {
        sums<V, N>      out   = load_sums<V, N>(acc, lane);
        const uint8_t * w     = w0;
        const auto *    codes = static_cast<const int8_t *>(x.codes) + k0 * N;
        const float *   scale = x.scale + k0 / 256 * N;
        const int32_t * pairs = x.pairs + k0 / 64 * N;
        for (int64_t k = 0; k < n_k; k += 256, w += n_unit_bytes, scale += N, pairs += 4 * N) {
            prefetch<4>(w, x);
            alignas(64) uint8_t sc[128];
            alignas(64) uint8_t least[128];
            unpack_scales(w + 64, sc, least);
            sums<V, N> part = no_sums<V, N>();
            for (int b = 0; b < 8; ++b) {
                block<V, N, bits>                  s;
                const uint8_t *                    q = w + 256 + b * (fifth ? 320 : 256) + lane * 4;
                [[maybe_unused]] typename V::bytes h;
                begin(s, no_start);
                if constexpr (fifth) {
                    prefetch<1>(q + 256, x);
                    h = V::load_bytes(q + 256);
                }
                unrolled<4>([&](auto step) DUO_INLINE_LAMBDA {
                    constexpr int i = decltype(step)::value;
                    prefetch<1>(q + i * 64, x);
                    const eight_columns<V> c = codes_q45<V, fifth, i>(q, h);
                    dot(s, c.lo, c.hi, codes + i * 8 * N);
                    if constexpr (fifth && i == 1) {
                        settle(s);
                    }
                });
                add_scaled<V, N>(part, finish(s, no_start), V::load_u8(sc + b * 16 + lane));
                codes += 32 * N;
            }
            subtract_minima<V, N, 4>(out, part, w, scale, least, pairs, lane);
        }
        store_sums<V, N>(out, acc, lane);
    }
}

// 16 blocks of 16 with an 8-bit scale.
template <class V, int N> void panel_q6_k(const uint8_t * w0, const tile & x, int64_t k0, int64_t n_k, float * acc) {
    for (int lane = 0; lane < n_lanes; lane += V::L) {
        sums<V, N>      out   = load_sums<V, N>(acc, lane);
        const uint8_t * w     = w0;
        const auto *    codes = static_cast<const int8_t *>(x.codes) + k0 * N;
        const float *   scale = x.scale + k0 / 256 * N;
        const int32_t * start = x.start + k0 / 16 * N;
        for (int64_t k = 0; k < n_k; k += 256, w += 3392, scale += N) {
            prefetch<5>(w, x);
            sums<V, N> part = no_sums<V, N>();
            for (int b = 0; b < 16; ++b) {
                block<V, N, 6>  s;
                const uint8_t * q = w + 320 + b * 192 + lane * 4;
                prefetch<3>(q, x);
                const typename V::bytes h = V::load_bytes(q + 128);
                begin(s, start);
                unrolled<2>([&](auto step) DUO_INLINE_LAMBDA {
                    constexpr int          i = decltype(step)::value;
                    const eight_columns<V> c = codes_q6_k<V, i>(q, h);
                    dot(s, c.lo, c.hi, codes + i * 8 * N);
                    if constexpr (i == 0) {
                        settle(s);
                    }
                });
                add_scaled<V, N>(part, finish(s, start), V::load_s8(w + 64 + b * 16 + lane));
                codes += 16 * N;
                start += N;
            }
            add_scaled<V, N>(out, part, V::load_f16(w + lane * 2), scale);
        }
        store_sums<V, N>(out, acc, lane);
    }
}

// IQ4_XS: 8 blocks of 32 with an 8-bit scale, whose codes are indices into a table.
template <class V, int N> void panel_iq4_xs(const uint8_t * w0, const tile & x, int64_t k0, int64_t n_k, float * acc) {
    for (int lane = 0; lane < n_lanes; lane += V::L) {
        sums<V, N>      out   = load_sums<V, N>(acc, lane);
        const uint8_t * w     = w0;
        const auto *    codes = static_cast<const int8_t *>(x.codes) + k0 * N;
        const float *   scale = x.scale + k0 / 256 * N;
        const int32_t * start = x.start + k0 / 32 * N;
        for (int64_t k = 0; k < n_k; k += 256, w += 2240, scale += N) {
            prefetch<3>(w, x);
            sums<V, N> part = no_sums<V, N>();
            for (int b = 0; b < 8; ++b) {
                block<V, N, 8>  s;
                const uint8_t * q = w + 192 + b * 256 + lane * 4;
                begin(s, start);
                DUO_UNROLL(4)
                for (int i = 0; i < 4; ++i) {
                    prefetch<1>(q + i * 64, x);
                    const eight_columns<V> c = codes_q4<V, code_table::iq4_nl>(q + i * 64);
                    dot(s, c.lo, c.hi, codes + i * 8 * N);
                }
                add_scaled<V, N>(part, finish(s, start), V::load_s8(w + 64 + b * 16 + lane));
                codes += 32 * N;
                start += N;
            }
            add_scaled<V, N>(out, part, V::load_f16(w + lane * 2), scale);
        }
        store_sums<V, N>(out, acc, lane);
    }
}

} // namespace
} // namespace duo::cpu
