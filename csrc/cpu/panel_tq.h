// Kernels of the ternary types, TQ1_0 and TQ2_0: codes from 0 to 2 (TQ2_0: 3), less one, and a scale for 256.
#pragma once

#include "base/compiler.h"
#include "panel.h"

namespace duo::cpu {
namespace {

// Calls use(lo, hi, column) for each eight columns of a unit. A byte of TQ1_0 holds five digits of base 3, those of
// columns 32 apart (the first 160), 16 apart, or four digits of columns 4 apart (the last 16). Multiplying it by 3
// moves the next digit to the front. q: the bytes, at the lane.
template <class V, class F> DUO_INLINE void each_eight_tq1(const uint8_t * q, F use) {
    for (int i = 0; i < 12; i += 2) {
        typename V::bytes lo   = V::load_bytes(q + i * 64);
        typename V::bytes hi   = V::load_bytes(q + i * 64 + 64);
        const int         from = i < 8 ? 4 * i : 160 + 4 * (i - 8);
        const int         step = i < 8 ? 32 : 16;
        for (int n = 0; n < 5; ++n) {
            use(V::first_digit(lo), V::first_digit(hi), from + n * step);
            lo = V::thrice(lo);
            hi = V::thrice(hi);
        }
    }
    const typename V::bytes a = V::load_bytes(q + 768);
    const typename V::bytes b = V::thrice(a);
    const typename V::bytes c = V::thrice(b);
    use(V::first_digit(a), V::first_digit(b), 240);
    use(V::first_digit(c), V::first_digit(V::thrice(c)), 248);
}

template <class V, class F> DUO_INLINE void each_eight_tq2(const uint8_t * q, F use) {
    for (int i = 0; i < 16; ++i) {
        const typename V::bytes v = V::load_bytes(q + i * 64);
        unrolled<2>([&](auto half) DUO_INLINE_LAMBDA {
            constexpr int          j = decltype(half)::value;
            const eight_columns<V> c = codes_q2_k<V, j>(v);
            use(c.lo, c.hi, 16 * i + 8 * j);
        });
    }
}

template <class V, format f, class F> DUO_INLINE void each_eight_tq(const uint8_t * q, F use) {
    if constexpr (f == format::tq1_0) {
        each_eight_tq1<V>(q, use);
    } else {
        each_eight_tq2<V>(q, use);
    }
}

template <class V, int N, format f>
void panel_tq(const uint8_t * w0, const tile & x, int64_t k0, int64_t n_k, float * acc) {
    constexpr int n_unit_bytes = traits_of(f).n_unit_bytes;
    for (int lane = 0; lane < n_lanes; lane += V::L) {
        sums<V, N>      out   = load_sums<V, N>(acc, lane);
        const uint8_t * w     = w0;
        const auto *    codes = static_cast<const int8_t *>(x.codes) + k0 * N;
        const float *   scale = x.scale + k0 / 256 * N;
        const int32_t * sum32 = x.start + k0 / 32 * N; // -128 * sum of 32
        for (int64_t k = 0; k < n_k; k += 256, w += n_unit_bytes, codes += 256 * N, scale += N, sum32 += 8 * N) {
            prefetch<n_unit_bytes / 64>(w, x);
            alignas(64) int32_t start[N] = {};
            for (int i = 0; i < 8 * N; ++i) {
                start[i % N] += sum32[i] / 128;
            }
            block<V, N, 2> s;
            begin(s, start);
            each_eight_tq<V, f>(w + 64 + lane * 4, [&](const auto & lo, const auto & hi, int column) DUO_INLINE_LAMBDA {
                dot(s, lo, hi, codes + column * N);
                if (f == format::tq2_0 && column == 128) {
                    settle(s);
                }
            });
            add_scaled<V, N>(out, finish(s, start), V::load_f16(w + lane * 2), scale);
        }
        store_sums<V, N>(out, acc, lane);
    }
}

} // namespace
} // namespace duo::cpu
