// Kernels of bf16, f16 and f32.
#pragma once

#include "base/compiler.h"
#include "panel.h"

namespace duo::cpu {
namespace {

// Two columns of a panel times the N inputs.
template <class V, int N> inline void add_bf16(sums<V, N> & s, const typename V::bf16s & w, const uint16_t * x) {
    DUO_UNROLL(8)
    for (int c = 0; c < N; ++c) {
        s.v[c] = V::dot_bf16(s.v[c], w, x + c * 2);
    }
}

// One column.
template <class V, int N> inline void add_f32(sums<V, N> & s, const typename V::floats & w, const float * x) {
    DUO_UNROLL(8)
    for (int c = 0; c < N; ++c) {
        s.v[c] = V::fma(w, V::broadcast_f(x + c), s.v[c]);
    }
}

// Multiplies pairs of bf16 with pairs of bf16 if the machine can; otherwise widens the weights and multiplies with
// floats. Even and odd columns have separate sums: two chains, so latency does not limit a single input.
template <class V, int N> void panel_bf16(const uint8_t * w0, const tile & x, int64_t k0, int64_t n_k, float * acc) {
    for (int lane = 0; lane < n_lanes; lane += V::L) {
        sums<V, N>      out   = load_sums<V, N>(acc, lane);
        sums<V, N>      odd   = no_sums<V, N>();
        const uint8_t * w     = w0 + lane * 4;
        const auto *    codes = static_cast<const uint16_t *>(x.codes) + k0 * N;
        for (int64_t k = 0; k < n_k; k += 4, w += 128, codes += 4 * N) {
            prefetch<2>(w, x);
            const typename V::bf16s a = V::load_bf16s(w);
            const typename V::bf16s b = V::load_bf16s(w + 64);
            add_bf16(out, a, codes);
            add_bf16(odd, b, codes + 2 * N);
        }
        DUO_UNROLL(8)
        for (int c = 0; c < N; ++c) {
            out.v[c] = V::add(out.v[c], odd.v[c]);
        }
        store_sums<V, N>(out, acc, lane);
    }
}

template <class V, int n_bytes> DUO_INLINE typename V::floats load_number(const uint8_t * p) {
    if constexpr (n_bytes == 2) {
        return V::load_f16(p);
    } else {
        return V::load(reinterpret_cast<const float *>(p));
    }
}

// f16 (n_bytes = 2) and f32 (4).
template <class V, int N, int n_bytes>
void panel_float(const uint8_t * w0, const tile & x, int64_t k0, int64_t n_k, float * acc) {
    constexpr int n_column = n_lanes * n_bytes;
    for (int lane = 0; lane < n_lanes; lane += V::L) {
        sums<V, N>      out = load_sums<V, N>(acc, lane);
        sums<V, N>      odd = no_sums<V, N>();
        const uint8_t * w   = w0 + lane * n_bytes;
        const auto *    f   = static_cast<const float *>(x.codes) + k0 * N;
        for (int64_t k = 0; k < n_k; k += 2, w += 2 * n_column, f += 2 * N) {
            prefetch<n_column / 32>(w, x);
            const typename V::floats a = load_number<V, n_bytes>(w);
            const typename V::floats b = load_number<V, n_bytes>(w + n_column);
            add_f32(out, a, f);
            add_f32(odd, b, f + N);
        }
        DUO_UNROLL(8)
        for (int c = 0; c < N; ++c) {
            out.v[c] = V::add(out.v[c], odd.v[c]);
        }
        store_sums<V, N>(out, acc, lane);
    }
}

} // namespace
} // namespace duo::cpu
