// ARM with the dot product of 8-bit codes (Armv8.2 with FEAT_DotProd: Cortex-A76, Neoverse N1, Apple M1). Compiled a
// second time with DUO_KERNEL_I8MM for machines that also multiply small matrices of 8-bit codes and pairs of bf16
// (Armv8.6: Neoverse V1, Apple M2). Right under emulation, never timed.
#include "base/compiler.h"
#include "vector_neon.h"

namespace duo::cpu {
namespace {

#if defined(DUO_KERNEL_I8MM)
template <int bits> constexpr bool is_signed = false;

// One instruction multiplies eight codes of two rows with eight of two inputs. From four inputs on this saves more than
// the grouping of a row's eight codes costs. The two sums of a pair of inputs hold rows 0 and 1, and 2 and 3.
template <int N> constexpr int n_paired = N >= 4 ? N / 2 * 2 : 0;

// Four rows times the four codes in a lane of x.
template <int lane> inline int32x4_t dot_lane(int32x4_t s, uint8x16_t w, int8x16_t x) {
    return vusdotq_laneq_s32(s, w, x, lane);
}
#else
// Codes that use the eighth bit become signed, so their sums need no start.
template <int bits> constexpr bool is_signed = bits == 8;

template <int N> constexpr int n_paired = 0;

template <int lane> inline int32x4_t dot_lane(int32x4_t s, uint8x16_t w, int8x16_t x) {
    return vdotq_laneq_s32(s, vreinterpretq_s8_u8(w), x, lane);
}
#endif

template <neon_type V, int N, int bits> inline void begin(block<V, N, bits> & s, const int32_t * start) {
    DUO_UNROLL(8)
    for (int c = 0; c < N; ++c) {
        if (is_signed<bits>) {
            s.v[c] = V::zero_i();
        } else if (c < n_paired<N>) {
            s.v[c] = V::broadcast_two(start + c / 2 * 2);
        } else {
            s.v[c] = V::broadcast(start + c);
        }
    }
}

template <neon_type V, int N, int bits>
inline void dot(block<V, N, bits> & s, const typename V::bytes & low, const typename V::bytes & high,
                const int8_t * x) {
    const typename V::bytes lo = is_signed<bits> ? V::flip(low) : low;
    const typename V::bytes hi = is_signed<bits> ? V::flip(high) : high;
    constexpr int           R  = V::L / 4;
#if defined(DUO_KERNEL_I8MM)
    if constexpr (n_paired<N> > 0) {
        const typename V::bytes first = V::first_rows(lo, hi);
        const typename V::bytes last  = V::last_rows(lo, hi);
        DUO_UNROLL(4)
        for (int c = 0; c < n_paired<N>; c += 2) {
            const int8x16_t both = vld1q_s8(x + 8 * c);
            DUO_UNROLL(4)
            for (int r = 0; r < R; ++r) {
                s.v[c].v[r]     = vusmmlaq_s32(s.v[c].v[r], first.v[r], both);
                s.v[c + 1].v[r] = vusmmlaq_s32(s.v[c + 1].v[r], last.v[r], both);
            }
        }
    }
#endif
    DUO_UNROLL(4)
    for (int c = n_paired<N>; c + 1 < N; c += 2) {
        const int8x16_t both = vld1q_s8(x + 8 * c);
        DUO_UNROLL(4)
        for (int r = 0; r < R; ++r) {
            s.v[c].v[r]     = dot_lane<0>(s.v[c].v[r], lo.v[r], both);
            s.v[c + 1].v[r] = dot_lane<2>(s.v[c + 1].v[r], lo.v[r], both);
        }
        DUO_UNROLL(4)
        for (int r = 0; r < R; ++r) {
            s.v[c].v[r]     = dot_lane<1>(s.v[c].v[r], hi.v[r], both);
            s.v[c + 1].v[r] = dot_lane<3>(s.v[c + 1].v[r], hi.v[r], both);
        }
    }
    if constexpr (N % 2 == 1) {
        const int8x16_t    one = vcombine_s8(vld1_s8(x + 8 * (N - 1)), vdup_n_s8(0));
        typename V::ints & to  = s.v[N - 1];
        DUO_UNROLL(4)
        for (int r = 0; r < R; ++r) {
            to.v[r] = dot_lane<0>(to.v[r], lo.v[r], one);
        }
        DUO_UNROLL(4)
        for (int r = 0; r < R; ++r) {
            to.v[r] = dot_lane<1>(to.v[r], hi.v[r], one);
        }
    }
}

template <neon_type V, int N, int bits> inline void settle(block<V, N, bits> &) {
}

template <neon_type V, int N, int bits> inline ints<V, N> finish(const block<V, N, bits> & s, const int32_t *) {
    ints<V, N> out;
    DUO_UNROLL(8)
    for (int c = 0; c < N; ++c) {
        if (c >= n_paired<N>) {
            out.v[c] = s.v[c];
        } else if (c % 2 == 0) {
            out.v[c]     = V::even_lanes(s.v[c], s.v[c + 1]);
            out.v[c + 1] = V::odd_lanes(s.v[c], s.v[c + 1]);
        }
    }
    return out;
}

// 32-bit inputs, four per register. Nothing after the last is read, because the tile may end there.
template <int N> struct words {
    uint32x4_t v[(N + 3) / 4];

    explicit words(const void * memory) {
        const auto * p = static_cast<const uint8_t *>(memory);
        DUO_UNROLL(2)
        for (int i = 0; i < N / 4; ++i) {
            v[i] = vreinterpretq_u32_u8(vld1q_u8(p + 16 * i));
        }
        const uint8_t * rest = p + N / 4 * 16;
        if constexpr (N % 4 >= 2) {
            v[N / 4] = vreinterpretq_u32_u8(vcombine_u8(vld1_u8(rest), vdup_n_u8(0)));
        }
        if constexpr (N % 4 == 3) {
            v[N / 4] = vsetq_lane_u32(uint32_t(load32(rest + 8)), v[N / 4], 2);
        } else if constexpr (N % 4 == 1) {
            v[N / 4] = vsetq_lane_u32(uint32_t(load32(rest)), vdupq_n_u32(0), 0);
        }
    }
};

template <neon_type V, int N> inline void add_bf16(sums<V, N> & s, const typename V::bf16s & w, const uint16_t * x) {
    const words<N> in(x);
    unrolled<N>([&](auto at) DUO_INLINE_LAMBDA {
        constexpr int c = decltype(at)::value;
        V::template dot_bf16<c % 4>(s.v[c], w, in.v[c / 4]);
    });
}

template <neon_type V, int N> inline void add_f32(sums<V, N> & s, const typename V::floats & w, const float * x) {
    const words<N> in(x);
    unrolled<N>([&](auto at) DUO_INLINE_LAMBDA {
        constexpr int c = decltype(at)::value;
        V::template fma_lane<c % 4>(s.v[c], w, vreinterpretq_f32_u32(in.v[c / 4]));
    });
}

// As many rows at a time as 32 registers have space for, with integer and float sums.
template <int N> struct type_for<neon<1>, N> {
    using type = neon<N <= 2 ? 4 : N <= 4 ? 2 : 1>;
};

} // namespace

#if defined(DUO_KERNEL_I8MM)
const kernel_set kernels_neon_i8mm = make_kernels<neon<1>>("neon_i8mm");
#else
const kernel_set kernels_neon_dot = make_kernels<neon<1>>("neon_dot");
#endif

} // namespace duo::cpu
