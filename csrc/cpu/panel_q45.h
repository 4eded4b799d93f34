// Kernels of blocks of 32 with a fifth bit or a minimum: Q4_1, Q5_0, Q5_1.
#pragma once

#include "base/compiler.h"
#include "panel.h"

namespace duo::cpu {
namespace {

// A weight is scale * code + minimum. Without a minimum the code has an offset, which the start of the sum removes.
// The loop over a block stands in panel_k.h, too: as one function it costs Q5_K a tenth of its speed (GCC 12, one
// input).
template <class V, int N, bool fifth, bool with_minima>
void panel_q45(const uint8_t * w0, const tile & x, int64_t k0, int64_t n_k, float * acc) {
    constexpr int bits          = fifth ? 5 : 4;
    constexpr int n_scale_bytes = with_minima ? 128 : 64;
    constexpr int n_block_bytes = fifth ? 320 : 256;
    for (int lane = 0; lane < n_lanes; lane += V::L) {
        sums<V, N>      out   = load_sums<V, N>(acc, lane);
        const uint8_t * w     = w0;
        const auto *    codes = static_cast<const int8_t *>(x.codes) + k0 * N;
        const float *   scale = x.scale + k0 / 32 * N;
        const float *   total = x.total + (with_minima ? k0 / 32 * N : 0);
        const int32_t * start = with_minima ? no_start : x.start + k0 / 32 * N;
        for (int64_t k = 0; k < n_k; k += 64, w += n_scale_bytes + 2 * n_block_bytes) {
            prefetch<n_scale_bytes / 64>(w, x);
            for (int b = 0; b < 2; ++b) {
                block<V, N, bits>                  s;
                const uint8_t *                    q = w + n_scale_bytes + b * n_block_bytes + lane * 4;
                [[maybe_unused]] typename V::bytes h;
                begin(s, start);
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
                add_scaled<V, N>(out, finish(s, start), V::load_f16(w + b * 32 + lane * 2), scale);
                if constexpr (with_minima) {
                    add_minima<V, N>(out, V::load_f16(w + 64 + b * 32 + lane * 2), total);
                    total += N;
                } else {
                    start += N;
                }
                codes += 32 * N;
                scale += N;
            }
        }
        store_sums<V, N>(out, acc, lane);
    }
}

} // namespace
} // namespace duo::cpu
