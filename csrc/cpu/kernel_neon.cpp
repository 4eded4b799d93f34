// ARM with the dot product of 8-bit codes (Armv8.2 with FEAT_DotProd: Cortex-A76, Neoverse N1, Apple M1). Compiled a
// second time with DUO_KERNEL_I8MM for machines that also multiply small matrices of 8-bit codes and pairs of bf16
// (Armv8.6: Neoverse V1, Apple M2). Right under emulation, never timed.
#include <arm_neon.h>

#include "kernel_table.h"

namespace duo::cpu {
namespace {

// n registers of four rows each.
template <int n> struct neon {
    static constexpr int L          = 4 * n;
    static constexpr int n_width    = 8;
    static constexpr int n_together = 8; // two inputs fill a register, and products take what they need by lane

    template <class T> struct registers {
        T v[n];
    };
    using floats = registers<float32x4_t>;
    using ints   = registers<int32x4_t>;
    using bytes  = registers<uint8x16_t>;

    template <int> using partial = ints;

    template <class F> [[gnu::always_inline]] static auto each(F f) {
        registers<decltype(f(0))> r;
#pragma GCC unroll 4
        for (int i = 0; i < n; ++i) {
            r.v[i] = f(i);
        }
        return r;
    }

    [[gnu::always_inline]] static floats load(const float * p) {
        return each([&](int i) { return vld1q_f32(p + 4 * i); });
    }
    static void store(float * p, const floats & x) {
#pragma GCC unroll 4
        for (int i = 0; i < n; ++i) {
            vst1q_f32(p + 4 * i, x.v[i]);
        }
    }
    static floats zero() {
        return each([](int) { return vdupq_n_f32(0); });
    }
    static ints zero_i() {
        return each([](int) { return vdupq_n_s32(0); });
    }
    static ints broadcast(const int32_t * p) {
        return each([&](int) { return vdupq_n_s32(*p); });
    }
    static ints broadcast_two(const int32_t * p) {
        return each([&](int) {
            const int32x2_t two = vld1_s32(p);
            return vcombine_s32(two, two);
        });
    }
    static ints even_lanes(const ints & a, const ints & b) {
        return each([&](int i) { return vuzp1q_s32(a.v[i], b.v[i]); });
    }
    static ints odd_lanes(const ints & a, const ints & b) {
        return each([&](int i) { return vuzp2q_s32(a.v[i], b.v[i]); });
    }
    // Eight codes of rows 0 and 1 of four, from four and four of each.
    static bytes first_rows(const bytes & lo, const bytes & hi) {
        return each([&](int i) {
            return vreinterpretq_u8_u32(vzip1q_u32(vreinterpretq_u32_u8(lo.v[i]), vreinterpretq_u32_u8(hi.v[i])));
        });
    }
    static bytes last_rows(const bytes & lo, const bytes & hi) {
        return each([&](int i) {
            return vreinterpretq_u8_u32(vzip2q_u32(vreinterpretq_u32_u8(lo.v[i]), vreinterpretq_u32_u8(hi.v[i])));
        });
    }
    static floats broadcast_f(const float * p) {
        return each([&](int) { return vdupq_n_f32(*p); });
    }
    static floats add(const floats & a, const floats & b) {
        return each([&](int i) { return vaddq_f32(a.v[i], b.v[i]); });
    }
    static floats mul(const floats & a, const floats & b) {
        return each([&](int i) { return vmulq_f32(a.v[i], b.v[i]); });
    }
    static floats fma(const floats & a, const floats & b, const floats & c) {
        return each([&](int i) { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
    }
    static floats fnma(const floats & a, const floats & b, const floats & c) {
        return each([&](int i) { return vfmsq_f32(c.v[i], a.v[i], b.v[i]); });
    }
    static floats to_float(const ints & a) {
        return each([&](int i) { return vcvtq_f32_s32(a.v[i]); });
    }
    [[gnu::always_inline]] static floats load_f16(const uint8_t * p) {
        return each([&](int i) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p + 8 * i))); });
    }
    static floats load_u8(const uint8_t * p) {
        return each([&](int i) { return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(load_four(p + 4 * i))))); });
    }
    static floats load_s8(const uint8_t * p) {
        return each([&](int i) {
            return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(load_four(p + 4 * i))))));
        });
    }
    static uint8x8_t load_four(const uint8_t * p) { return vreinterpret_u8_s32(vdup_n_s32(load32(p))); }

    [[gnu::always_inline]] static bytes load_bytes(const uint8_t * p) {
        return each([&](int i) { return vld1q_u8(p + 16 * i); });
    }
    static bytes low(const bytes & a) {
        return each([&](int i) { return vandq_u8(a.v[i], vdupq_n_u8(15)); });
    }
    static bytes high(const bytes & a) {
        return each([&](int i) { return vshrq_n_u8(a.v[i], 4); });
    }
    static bytes look_up(const bytes & a) {
        return each([&](int i) { return vqtbl1q_u8(vld1q_u8(iq4_nl_codes), a.v[i]); });
    }
    static bytes flip(const bytes & a) {
        return each([&](int i) { return veorq_u8(a.v[i], vdupq_n_u8(0x80)); });
    }
    template <int mask, int by> static bytes add_bits(const bytes & a, const bytes & h) {
        return each([&](int i) {
            uint8x16_t t = h.v[i];
            if constexpr (by > 0) {
                t = vshlq_n_u8(t, by);
            } else if constexpr (by < 0) {
                t = vshrq_n_u8(t, -by);
            }
            return vorrq_u8(a.v[i], vandq_u8(t, vdupq_n_u8(mask)));
        });
    }

    // Numbers of 16 bits: those that meet the first of a pair in the lower half.
    static ints load_pairs(const uint8_t * even, const uint8_t * odd) {
        return each([&](int i) {
            const int32x2_t both = vset_lane_s32(load32(odd + 4 * i), vdup_n_s32(load32(even + 4 * i)), 1);
            return vreinterpretq_s32_u16(vmovl_u8(vreinterpret_u8_s32(both)));
        });
    }
    static ints dot_pairs(const ints & s, const ints & w, const int32_t * x) {
        const int16x4_t pair = vreinterpret_s16_s32(vdup_n_s32(*x));
        return each([&](int i) {
            const int16x8_t m = vreinterpretq_s16_s32(w.v[i]);
            return vmlal_high_lane_s16(vmlal_lane_s16(s.v[i], vget_low_s16(m), pair, 0), m, pair, 1);
        });
    }

#if defined(DUO_KERNEL_I8MM)
    using bf16s = registers<bfloat16x8_t>;
    [[gnu::always_inline]] static bf16s load_bf16s(const uint8_t * p) {
        return each([&](int i) { return vreinterpretq_bf16_u8(vld1q_u8(p + 16 * i)); });
    }
    template <int lane> static void dot_bf16(floats & s, const bf16s & w, uint32x4_t x) {
#pragma GCC unroll 4
        for (int i = 0; i < n; ++i) {
            s.v[i] = vbfdotq_laneq_f32(s.v[i], w.v[i], vreinterpretq_bf16_u32(x), lane);
        }
    }
#else
    struct bf16s {
        floats even, odd;
    };
    [[gnu::always_inline]] static bf16s load_bf16s(const uint8_t * p) {
        const bytes v = load_bytes(p);
        return {each([&](int i) { return even_of(vreinterpretq_u32_u8(v.v[i])); }),
                each([&](int i) { return odd_of(vreinterpretq_u32_u8(v.v[i])); })};
    }
    // Pairs of bf16 become floats.
    static float32x4_t even_of(uint32x4_t v) { return vreinterpretq_f32_u32(vshlq_n_u32(v, 16)); }
    static float32x4_t odd_of(uint32x4_t v) { return vreinterpretq_f32_u32(vandq_u32(v, vdupq_n_u32(0xffff0000))); }
    template <int lane> static void dot_bf16(floats & s, const bf16s & w, uint32x4_t x) {
        fma_lane<lane>(s, w.even, even_of(x));
        fma_lane<lane>(s, w.odd, odd_of(x));
    }
#endif
    template <int lane> static void fma_lane(floats & s, const floats & w, float32x4_t x) {
#pragma GCC unroll 4
        for (int i = 0; i < n; ++i) {
            s.v[i] = vfmaq_laneq_f32(s.v[i], w.v[i], x, lane);
        }
    }
};

template <class V> constexpr bool is_neon          = false;
template <int n> constexpr bool   is_neon<neon<n>> = true;
template <class V>
concept neon_type = is_neon<V>;

#if defined(DUO_KERNEL_I8MM)
template <int bits> constexpr bool is_signed = false;

// One instruction multiplies eight codes of two rows with eight of two inputs. From four inputs on that saves more than
// it costs to bring a row's eight codes together. The two sums of a pair of inputs hold rows 0 and 1, and 2 and 3.
template <int N> constexpr int n_paired = N >= 4 ? N / 2 * 2 : 0;

// Four rows times the four codes in a lane of x.
template <int lane> inline int32x4_t dot_lane(int32x4_t s, uint8x16_t w, int8x16_t x) {
    return vusdotq_laneq_s32(s, w, x, lane);
}
#else
// Codes that use the eighth bit become signed ones, and their sums need no start.
template <int bits> constexpr bool is_signed = bits == 8;

template <int N> constexpr int n_paired = 0;

template <int lane> inline int32x4_t dot_lane(int32x4_t s, uint8x16_t w, int8x16_t x) {
    return vdotq_laneq_s32(s, vreinterpretq_s8_u8(w), x, lane);
}
#endif

template <neon_type V, int N, int bits> inline void begin(block<V, N, bits> & s, const int32_t * start) {
#pragma GCC unroll 8
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
#pragma GCC unroll 4
        for (int c = 0; c < n_paired<N>; c += 2) {
            const int8x16_t both = vld1q_s8(x + 8 * c);
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) {
                s.v[c].v[r]     = vusmmlaq_s32(s.v[c].v[r], first.v[r], both);
                s.v[c + 1].v[r] = vusmmlaq_s32(s.v[c + 1].v[r], last.v[r], both);
            }
        }
    }
#endif
#pragma GCC unroll 4
    for (int c = n_paired<N>; c + 1 < N; c += 2) {
        const int8x16_t both = vld1q_s8(x + 8 * c);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
            s.v[c].v[r]     = dot_lane<0>(s.v[c].v[r], lo.v[r], both);
            s.v[c + 1].v[r] = dot_lane<2>(s.v[c + 1].v[r], lo.v[r], both);
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
            s.v[c].v[r]     = dot_lane<1>(s.v[c].v[r], hi.v[r], both);
            s.v[c + 1].v[r] = dot_lane<3>(s.v[c + 1].v[r], hi.v[r], both);
        }
    }
    if constexpr (N % 2 == 1) {
        const int8x16_t one  = vcombine_s8(vld1_s8(x + 8 * (N - 1)), vdup_n_s8(0));
        typename V::ints & to = s.v[N - 1];
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
            to.v[r] = dot_lane<0>(to.v[r], lo.v[r], one);
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
            to.v[r] = dot_lane<1>(to.v[r], hi.v[r], one);
        }
    }
}

template <neon_type V, int N, int bits> inline void settle(block<V, N, bits> &) {}

template <neon_type V, int N, int bits> inline ints<V, N> finish(const block<V, N, bits> & s, const int32_t *) {
    ints<V, N> out;
#pragma GCC unroll 8
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

// Inputs of 32 bits, four to a register. Nothing behind the last is read: a tile may end there.
template <int N> struct words {
    uint32x4_t v[(N + 3) / 4];

    explicit words(const void * memory) {
        const auto * p = static_cast<const uint8_t *>(memory);
#pragma GCC unroll 2
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

template <neon_type V, int N>
inline void add_bf16(sums<V, N> & s, const typename V::bf16s & w, const uint16_t * x) {
    const words<N> in(x);
    unrolled<N>([&](auto at) __attribute__((always_inline)) {
        constexpr int c = decltype(at)::value;
        V::template dot_bf16<c % 4>(s.v[c], w, in.v[c / 4]);
    });
}

template <neon_type V, int N> inline void add_f32(sums<V, N> & s, const typename V::floats & w, const float * x) {
    const words<N> in(x);
    unrolled<N>([&](auto at) __attribute__((always_inline)) {
        constexpr int c = decltype(at)::value;
        V::template fma_lane<c % 4>(s.v[c], w, vreinterpretq_f32_u32(in.v[c / 4]));
    });
}

// As many rows at a time as 32 registers hold sums of integers and of floats for.
template <int N> struct type_for<neon<1>, N> {
    using type = neon<N <= 2 ? 4 : N <= 5 ? 2 : 1>;
};

} // namespace

#if defined(DUO_KERNEL_I8MM)
const kernel_set kernels_neon_i8mm = make_kernels<neon<1>>("neon_i8mm");
#else
const kernel_set kernels_neon_dot = make_kernels<neon<1>>("neon_dot");
#endif

} // namespace duo::cpu
