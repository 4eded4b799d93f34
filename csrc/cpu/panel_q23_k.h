// Kernels of the K-quants with the fewest bits, Q2_K and Q3_K: 16 blocks of 16.
#pragma once

#include "base/compiler.h"
#include "panel_k.h"

namespace duo::cpu {
namespace {

// Sums of 16 inputs in pairs, from -32 times each: [8][N] of 256 columns.
template <int N> inline void pair_sums(const int32_t * start, int32_t * pairs) {
    for (int b = 0; b < 8; ++b) {
        for (int c = 0; c < N; ++c) {
            const int32_t even = start[2 * b * N + c] / -32;
            const int32_t odd  = start[(2 * b + 1) * N + c] / -32;
            pairs[b * N + c]   = int32_t((uint32_t(even) & 0xffff) | (uint32_t(odd) << 16));
        }
    }
}

// Scales and minima of 4 bits.
template <class V, int N> void panel_q2_k(const uint8_t * w0, const tile & x, int64_t k0, int64_t n_k, float * acc) {
    for (int lane = 0; lane < n_lanes; lane += V::L) {
        sums<V, N>      out   = load_sums<V, N>(acc, lane);
        const uint8_t * w     = w0;
        const auto *    codes = static_cast<const int8_t *>(x.codes) + k0 * N;
        const float *   scale = x.scale + k0 / 256 * N;
        const int32_t * start = x.start + k0 / 16 * N;
        for (int64_t k = 0; k < n_k; k += 256, w += 1344, scale += N, start += 16 * N) {
            prefetch<5>(w, x);
            alignas(64) uint8_t sc[256];
            alignas(64) uint8_t least[256];
            alignas(64) int32_t pairs[8 * N];
            for (int i = 0; i < 256; ++i) {
                sc[i]    = w[64 + i] & 15;
                least[i] = w[64 + i] >> 4;
            }
            pair_sums<N>(start, pairs);
            sums<V, N> part = no_sums<V, N>();
            for (int b = 0; b < 16; ++b) {
                block<V, N, 2>  s;
                const uint8_t * q = w + 320 + b * 64 + lane * 4;
                prefetch<1>(q, x);
                const typename V::bytes v = V::load_bytes(q);
                begin(s, no_start);
                unrolled<2>([&](auto step) DUO_INLINE_LAMBDA {
                    constexpr int          i = decltype(step)::value;
                    const eight_columns<V> c = codes_q2_k<V, i>(v);
                    dot(s, c.lo, c.hi, codes + i * 8 * N);
                });
                add_scaled<V, N>(part, finish(s, no_start), V::load_u8(sc + b * 16 + lane));
                codes += 16 * N;
            }
            subtract_minima<V, N, 8>(out, part, w, scale, least, pairs, lane);
        }
        store_sums<V, N>(out, acc, lane);
    }
}

// An 8-bit scale. Codes have an offset of 4.
template <class V, int N> void panel_q3_k(const uint8_t * w0, const tile & x, int64_t k0, int64_t n_k, float * acc) {
    for (int lane = 0; lane < n_lanes; lane += V::L) {
        sums<V, N>      out   = load_sums<V, N>(acc, lane);
        const uint8_t * w     = w0;
        const auto *    codes = static_cast<const int8_t *>(x.codes) + k0 * N;
        const float *   scale = x.scale + k0 / 256 * N;
        const int32_t * sum32 = x.start + k0 / 16 * N; // -32 * sum of 16
        for (int64_t k = 0; k < n_k; k += 256, w += 1856, scale += N, sum32 += 16 * N) {
            prefetch<5>(w, x);
            alignas(64) int32_t start[16 * N];
            for (int i = 0; i < 16 * N; ++i) {
                start[i] = sum32[i] / 8;
            }
            sums<V, N> part = no_sums<V, N>();
            for (int b = 0; b < 8; ++b) {
                const uint8_t * q = w + 320 + b * 192 + lane * 4;
                prefetch<3>(q, x);
                const typename V::bytes h = V::load_bytes(q + 128);
                unrolled<2>([&](auto half) DUO_INLINE_LAMBDA {
                    constexpr int           j  = decltype(half)::value;
                    const int32_t *         at = start + (2 * b + j) * N;
                    const typename V::bytes v  = V::load_bytes(q + j * 64);
                    block<V, N, 3>          s;
                    begin(s, at);
                    unrolled<2>([&](auto step) DUO_INLINE_LAMBDA {
                        constexpr int          i = decltype(step)::value;
                        const eight_columns<V> c = codes_q3_k<V, 2 * j + i>(v, h);
                        dot(s, c.lo, c.hi, codes + i * 8 * N);
                    });
                    add_scaled<V, N>(part, finish(s, at), V::load_s8(w + 64 + (2 * b + j) * 16 + lane));
                    codes += 16 * N;
                });
            }
            add_scaled<V, N>(out, part, V::load_f16(w + lane * 2), scale);
        }
        store_sums<V, N>(out, acc, lane);
    }
}

} // namespace
} // namespace duo::cpu
