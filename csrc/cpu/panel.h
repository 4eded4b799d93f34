// The kernels, written once over a small vector type V and compiled once per instruction set. Everything is in an
// unnamed namespace: code made for one instruction set must never be linked into another.
//
// V::L lanes; V::bytes holds four codes of each lane. A panel of 16 rows is walked 16 / L times.
#pragma once

#include <cstring>

#include "kernel.h"

namespace duo::cpu {
namespace {

template <int i> struct constant {
    static constexpr int value = i;
};

// f(constant<0>) ... f(constant<n - 1>): a loop whose counter may stand in a template argument.
template <int n, int i = 0, class F> [[gnu::always_inline]] inline void unrolled(F f) {
    if constexpr (i < n) {
        f(constant<i>{});
        unrolled<n, i + 1>(f);
    }
}

template <class V, int N> struct sums {
    typename V::floats v[N];
};

template <class V, int N> inline sums<V, N> load_sums(const float * acc, int lane) {
    sums<V, N> s;
#pragma GCC unroll 8
    for (int c = 0; c < N; ++c) {
        s.v[c] = V::load(acc + c * n_lanes + lane);
    }
    return s;
}

template <class V, int N> inline void store_sums(const sums<V, N> & s, float * acc, int lane) {
#pragma GCC                           unroll 8
    for (int c = 0; c < N; ++c) {
        V::store(acc + c * n_lanes + lane, s.v[c]);
    }
}

template <class V, int N> struct ints {
    typename V::ints v[N];
};

template <class V, int N> inline ints<V, N> start_at(const int32_t * p) {
    ints<V, N> s;
#pragma GCC unroll 8
    for (int c = 0; c < N; ++c) {
        s.v[c] = V::broadcast(p + c);
    }
    return s;
}

// Four columns of a panel times the N inputs. full: codes up to 255.
template <class V, int N, bool full> inline void dot(ints<V, N> & s, typename V::bytes w, const int8_t * x) {
    if constexpr (full) {
        const typename V::prepared p = V::prepare(w);
#pragma GCC unroll 8
        for (int c = 0; c < N; ++c) {
            s.v[c] = V::dot_full(s.v[c], p, x + c * 4);
        }
    } else {
#pragma GCC unroll 8
        for (int c = 0; c < N; ++c) {
            s.v[c] = V::dot(s.v[c], w, x + c * 4);
        }
    }
}

template <class V, int N> inline void add_scaled(sums<V, N> & to, const ints<V, N> & s, typename V::floats scale) {
#pragma GCC                           unroll 8
    for (int c = 0; c < N; ++c) {
        to.v[c] = V::fma(V::to_float(s.v[c]), scale, to.v[c]);
    }
}

// The same where each input has a scale of its own for the block.
template <class V, int N>
inline void add_scaled(sums<V, N> & to, const ints<V, N> & s, typename V::floats d, const float * scale) {
#pragma GCC unroll 8
    for (int c = 0; c < N; ++c) {
        to.v[c] = V::fma(V::to_float(s.v[c]), V::mul(d, V::broadcast_f(scale + c)), to.v[c]);
    }
}

// Narrow tiles are bound by memory, which the hardware prefetches best alone; wide ones leave it too little time
// (measured on Zen 4: 9% for Q8_0, 4% for Q4_K, a loss for Q6_K, which does without).
template <int N> inline void prefetch(const uint8_t * p) {
    if constexpr (N >= 5) {
        __builtin_prefetch(p + 3072);
    }
}

template <class V, int N> void panel_q8_0(const uint8_t * w0, const tile & x, int64_t k0, int64_t n_k, float * acc) {
    for (int lane = 0; lane < n_lanes; lane += V::L) {
        sums<V, N>      out   = load_sums<V, N>(acc, lane);
        const uint8_t * w     = w0;
        const auto *    codes = static_cast<const int8_t *>(x.codes) + k0 * N;
        const float *   scale = x.scale + k0 / 32 * N;
        const int32_t * start = x.start + k0 / 32 * N;
        for (int64_t k = 0; k < n_k; k += 64, w += 1088) {
            prefetch<N>(w);
            for (int b = 0; b < 2; ++b) {
                ints<V, N>      s = start_at<V, N>(start);
                const uint8_t * q = w + 64 + b * 512 + lane * 4;
#pragma GCC unroll 8
                for (int i = 0; i < 8; ++i) {
                    prefetch<N>(q + i * 64);
                    dot<V, N, true>(s, V::load_bytes(q + i * 64), codes + i * 4 * N);
                }
                add_scaled<V, N>(out, s, V::load_f16(w + b * 32 + lane * 2), scale);
                codes += 32 * N;
                scale += N;
                start += N;
            }
        }
        store_sums<V, N>(out, acc, lane);
    }
}

// Q4_0 and IQ4_NL: 4-bit codes, or 4-bit places in a table of 8-bit codes.
template <class V, int N, bool table>
void panel_q4(const uint8_t * w0, const tile & x, int64_t k0, int64_t n_k, float * acc) {
    for (int lane = 0; lane < n_lanes; lane += V::L) {
        sums<V, N>      out   = load_sums<V, N>(acc, lane);
        const uint8_t * w     = w0;
        const auto *    codes = static_cast<const int8_t *>(x.codes) + k0 * N;
        const float *   scale = x.scale + k0 / 32 * N;
        const int32_t * start = x.start + k0 / 32 * N;
        for (int64_t k = 0; k < n_k; k += 64, w += 576) {
            prefetch<N>(w);
            for (int b = 0; b < 2; ++b) {
                ints<V, N>      s = start_at<V, N>(start);
                const uint8_t * q = w + 64 + b * 256 + lane * 4;
#pragma GCC unroll 4
                for (int i = 0; i < 4; ++i) {
                    prefetch<N>(q + i * 64);
                    const typename V::bytes v  = V::load_bytes(q + i * 64);
                    typename V::bytes       lo = V::low(v);
                    typename V::bytes       hi = V::high(v);
                    if constexpr (table) {
                        lo = V::look_up(lo);
                        hi = V::look_up(hi);
                    }
                    dot<V, N, table>(s, lo, codes + (2 * i) * 4 * N);
                    dot<V, N, table>(s, hi, codes + (2 * i + 1) * 4 * N);
                }
                add_scaled<V, N>(out, s, V::load_f16(w + b * 32 + lane * 2), scale);
                codes += 32 * N;
                scale += N;
                start += N;
            }
        }
        store_sums<V, N>(out, acc, lane);
    }
}

// The 6-bit scales and minima of 16 rows and 8 blocks of 32, from 192 bytes: see pack_scales.
inline void unpack_scales(const uint8_t * p, uint8_t * scale, uint8_t * least) {
    const uint8_t * h = p + 128;
    for (int i = 0; i < 64; ++i) {
        scale[i]      = uint8_t((p[i] & 15) | ((h[i] & 3) << 4));
        least[i]      = uint8_t((p[i] >> 4) | (((h[i] >> 2) & 3) << 4));
        scale[64 + i] = uint8_t((p[64 + i] & 15) | (((h[i] >> 4) & 3) << 4));
        least[64 + i] = uint8_t((p[64 + i] >> 4) | ((h[i] >> 6) << 4));
    }
}

// Q4_K and Q5_K (with one more bit per code): 8 blocks of 32 with 6-bit scale and minimum.
template <class V, int N, bool fifth>
void panel_q45_k(const uint8_t * w0, const tile & x, int64_t k0, int64_t n_k, float * acc) {
    constexpr int n_unit_bytes = fifth ? 2816 : 2304;
    for (int lane = 0; lane < n_lanes; lane += V::L) {
        sums<V, N>      out   = load_sums<V, N>(acc, lane);
        const uint8_t * w     = w0;
        const auto *    codes = static_cast<const int8_t *>(x.codes) + k0 * N;
        const float *   scale = x.scale + k0 / 256 * N;
        const int32_t * pairs = x.pairs + k0 / 64 * N;
        for (int64_t k = 0; k < n_k; k += 256, w += n_unit_bytes, scale += N, pairs += 4 * N) {
            alignas(64) uint8_t sc[128];
            alignas(64) uint8_t least[128];
            unpack_scales(w + 64, sc, least);
            sums<V, N> part;
#pragma GCC unroll 8
            for (int c = 0; c < N; ++c) {
                part.v[c] = V::zero();
            }
            for (int b = 0; b < 8; ++b) {
                ints<V, N> s;
#pragma GCC unroll 8
                for (int c = 0; c < N; ++c) {
                    s.v[c] = V::zero_i();
                }
                const uint8_t *                    q = w + 256 + b * (fifth ? 320 : 256) + lane * 4;
                [[maybe_unused]] typename V::bytes h;
                if constexpr (fifth) {
                    h = V::load_bytes(q + 256);
                }
                unrolled<4>([&](auto step) __attribute__((always_inline)) {
                    constexpr int i = decltype(step)::value;
                    prefetch<N>(q + i * 64);
                    const typename V::bytes v  = V::load_bytes(q + i * 64);
                    typename V::bytes       lo = V::low(v);
                    typename V::bytes       hi = V::high(v);
                    if constexpr (fifth) {
                        // Bit j of a byte of h is the fifth bit of the code in vector j.
                        lo = V::template add_bits<0x10, 4 - 2 * i>(lo, h);
                        hi = V::template add_bits<0x10, 3 - 2 * i>(hi, h);
                    }
                    dot<V, N, false>(s, lo, codes + (2 * i) * 4 * N);
                    dot<V, N, false>(s, hi, codes + (2 * i + 1) * 4 * N);
                });
                add_scaled<V, N>(part, s, V::load_u8(sc + b * 16 + lane));
                codes += 32 * N;
            }
            ints<V, N> low;
#pragma GCC unroll 8
            for (int c = 0; c < N; ++c) {
                low.v[c] = V::zero_i();
            }
#pragma GCC unroll 4
            for (int b = 0; b < 4; ++b) {
                const typename V::ints m = V::load_pairs(least + b * 32 + lane, least + b * 32 + 16 + lane);
#pragma GCC unroll 8
                for (int c = 0; c < N; ++c) {
                    low.v[c] = V::dot_pairs(low.v[c], m, pairs + b * N + c);
                }
            }
            const typename V::floats d     = V::load_f16(w + lane * 2);
            const typename V::floats d_min = V::load_f16(w + 32 + lane * 2);
#pragma GCC unroll 8
            for (int c = 0; c < N; ++c) {
                const typename V::floats dx = V::broadcast_f(scale + c);
                out.v[c]                    = V::fma(part.v[c], V::mul(d, dx), out.v[c]);
                out.v[c]                    = V::fnma(V::to_float(low.v[c]), V::mul(d_min, dx), out.v[c]);
            }
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
            sums<V, N> part;
#pragma GCC unroll 8
            for (int c = 0; c < N; ++c) {
                part.v[c] = V::zero();
            }
            for (int b = 0; b < 16; ++b) {
                ints<V, N>              s = start_at<V, N>(start);
                const uint8_t *         q = w + 320 + b * 192 + lane * 4;
                const typename V::bytes h = V::load_bytes(q + 128);
                unrolled<2>([&](auto step) __attribute__((always_inline)) {
                    constexpr int           i  = decltype(step)::value;
                    const typename V::bytes v  = V::load_bytes(q + i * 64);
                    const typename V::bytes lo = V::template add_bits<0x30, 4 - 4 * i>(V::low(v), h);
                    const typename V::bytes hi = V::template add_bits<0x30, 2 - 4 * i>(V::high(v), h);
                    dot<V, N, false>(s, lo, codes + (2 * i) * 4 * N);
                    dot<V, N, false>(s, hi, codes + (2 * i + 1) * 4 * N);
                });
                add_scaled<V, N>(part, s, V::load_s8(w + 64 + b * 16 + lane));
                codes += 16 * N;
                start += N;
            }
            const typename V::floats d = V::load_f16(w + lane * 2);
#pragma GCC unroll 8
            for (int c = 0; c < N; ++c) {
                out.v[c] = V::fma(part.v[c], V::mul(d, V::broadcast_f(scale + c)), out.v[c]);
            }
        }
        store_sums<V, N>(out, acc, lane);
    }
}

// Pairs of bf16 times pairs of bf16 where the machine multiplies them, else widened and times float.
// Even and odd columns have a sum each: two chains, so that one input is not bound by latency.
template <class V, int N> void panel_bf16(const uint8_t * w0, const tile & x, int64_t k0, int64_t n_k, float * acc) {
    for (int lane = 0; lane < n_lanes; lane += V::L) {
        sums<V, N> out = load_sums<V, N>(acc, lane);
        sums<V, N> odd;
#pragma GCC unroll 8
        for (int c = 0; c < N; ++c) {
            odd.v[c] = V::zero();
        }
        const uint8_t * w     = w0 + lane * 4;
        const auto *    codes = static_cast<const uint16_t *>(x.codes) + k0 * N;
        for (int64_t k = 0; k < n_k; k += 4, w += 128, codes += 4 * N) {
            prefetch<N>(w);
            prefetch<N>(w + 64);
            const typename V::bf16s a = V::load_bf16s(w);
            const typename V::bf16s b = V::load_bf16s(w + 64);
#pragma GCC unroll 8
            for (int c = 0; c < N; ++c) {
                out.v[c] = V::dot_bf16(out.v[c], a, codes + c * 2);
                odd.v[c] = V::dot_bf16(odd.v[c], b, codes + 2 * N + c * 2);
            }
        }
#pragma GCC unroll 8
        for (int c = 0; c < N; ++c) {
            out.v[c] = V::add(out.v[c], odd.v[c]);
        }
        store_sums<V, N>(out, acc, lane);
    }
}

template <class V, int N> void panel_f16(const uint8_t * w0, const tile & x, int64_t k0, int64_t n_k, float * acc) {
    for (int lane = 0; lane < n_lanes; lane += V::L) {
        sums<V, N> out = load_sums<V, N>(acc, lane);
        sums<V, N> odd;
#pragma GCC unroll 8
        for (int c = 0; c < N; ++c) {
            odd.v[c] = V::zero();
        }
        const uint8_t * w = w0 + lane * 2;
        const auto *    f = static_cast<const float *>(x.codes) + k0 * N;
        for (int64_t k = 0; k < n_k; k += 2, w += 64, f += 2 * N) {
            prefetch<N>(w);
            const typename V::floats a = V::load_f16(w);
            const typename V::floats b = V::load_f16(w + 32);
#pragma GCC unroll 8
            for (int c = 0; c < N; ++c) {
                out.v[c] = V::fma(a, V::broadcast_f(f + c), out.v[c]);
                odd.v[c] = V::fma(b, V::broadcast_f(f + N + c), odd.v[c]);
            }
        }
#pragma GCC unroll 8
        for (int c = 0; c < N; ++c) {
            out.v[c] = V::add(out.v[c], odd.v[c]);
        }
        store_sums<V, N>(out, acc, lane);
    }
}

} // namespace
} // namespace duo::cpu
