// The vector type for ARM's registers, with and without DUO_KERNEL_I8MM.
#pragma once

#include <arm_neon.h>

#include "base/compiler.h"
#include "kernel_table.h"

namespace duo::cpu {
namespace {

// n registers of four rows each.
template <int n> struct neon {
    static constexpr int L          = 4 * n;
    static constexpr int n_width    = 8;
    static constexpr int n_together = 8; // two inputs fill a register, and products select theirs by lane

    template <class T> struct registers {
        T v[n];
    };
    using floats = registers<float32x4_t>;
    using ints   = registers<int32x4_t>;
    using bytes  = registers<uint8x16_t>;

    template <int> using partial = ints;

    template <class F> DUO_INLINE static auto each(F f) {
        registers<decltype(f(0))> r;
        DUO_UNROLL(4)
        for (int i = 0; i < n; ++i) {
            r.v[i] = f(i);
        }
        return r;
    }

    DUO_INLINE static floats load(const float * p) {
        return each([&](int i) { return vld1q_f32(p + 4 * i); });
    }
    static void store(float * p, const floats & x) {
        DUO_UNROLL(4)
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
    // Lane i is the sum of vector i's lanes: (0 + 2) + (1 + 3).
    static floats lane_sums(const floats (&v)[4]) {
        const auto halves = [](float32x4_t a, float32x4_t b) {
            return vaddq_f32(vcombine_f32(vget_low_f32(a), vget_low_f32(b)),
                             vcombine_f32(vget_high_f32(a), vget_high_f32(b)));
        };
        return {{vpaddq_f32(halves(v[0].v[0], v[1].v[0]), halves(v[2].v[0], v[3].v[0]))}};
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
    // Eight codes of rows 0 and 1 (of four rows), from two groups of four codes each.
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
    DUO_INLINE static floats load_f16(const uint8_t * p) {
        return each([&](int i) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p + 8 * i))); });
    }
    static floats load_bf16(const uint8_t * p) {
        return each(
            [&](int i) { return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p + 8 * i)), 16)); });
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

    DUO_INLINE static bytes load_bytes(const uint8_t * p) {
        return each([&](int i) { return vld1q_u8(p + 16 * i); });
    }
    static bytes low(const bytes & a) {
        return each([&](int i) { return vandq_u8(a.v[i], vdupq_n_u8(15)); });
    }
    static bytes high(const bytes & a) {
        return each([&](int i) { return vshrq_n_u8(a.v[i], 4); });
    }
    static bytes look_up(const uint8_t * table, const bytes & a) {
        return each([&](int i) { return vqtbl1q_u8(vld1q_u8(table), a.v[i]); });
    }
    static bytes first_digit(const bytes & v) {
        return each([&](int i) {
            const uint8x16_t one = vdupq_n_u8(1);
            return vaddq_u8(vminq_u8(vqsubq_u8(v.v[i], vdupq_n_u8(85)), one),
                            vminq_u8(vqsubq_u8(v.v[i], vdupq_n_u8(170)), one));
        });
    }
    static bytes thrice(const bytes & v) {
        return each([&](int i) { return vaddq_u8(v.v[i], vaddq_u8(v.v[i], v.v[i])); });
    }
    static bytes load_each(const uint8_t * p) {
        return each(
            [&](int i) { return vreinterpretq_u8_u32(vmovl_u16(vget_low_u16(vmovl_u8(load_four(p + 4 * i))))); });
    }
    static bytes load_two_each(const uint8_t * p) {
        return each([&](int i) { return vreinterpretq_u8_u32(vmovl_u16(vreinterpret_u16_u8(vld1_u8(p + 8 * i)))); });
    }
    template <int mask, int bit> static bytes add_where(const bytes & v, const bytes & h) {
        return each([&](int i) {
            const uint32x4_t set = vtstq_u32(vreinterpretq_u32_u8(h.v[i]), vdupq_n_u32(1U << bit));
            return vorrq_u8(v.v[i], vandq_u8(vreinterpretq_u8_u32(set), vdupq_n_u8(mask)));
        });
    }
    // In each lane an entry of a table: see vector_avx512.h.
    template <int i, int mask, int by> static bytes entries(const uint32_t * table, const bytes & q, const bytes & h) {
        return each([&](int j) {
            uint32x4_t at = vreinterpretq_u32_u8(q.v[j]);
            if constexpr (i > 0) {
                at = vshrq_n_u32(at, 8 * i);
            }
            at = vandq_u32(at, vdupq_n_u32(255));
            if constexpr (mask != 0) {
                const uint32x4_t up = vshlq_u32(vreinterpretq_u32_u8(h.v[j]), vdupq_n_s32(by));
                at                  = vorrq_u32(at, vandq_u32(up, vdupq_n_u32(mask)));
            }
            uint32x4_t found = vdupq_n_u32(table[vgetq_lane_u32(at, 0)]);
            found            = vld1q_lane_u32(table + vgetq_lane_u32(at, 1), found, 1);
            found            = vld1q_lane_u32(table + vgetq_lane_u32(at, 2), found, 2);
            found            = vld1q_lane_u32(table + vgetq_lane_u32(at, 3), found, 3);
            return vreinterpretq_u8_u32(found);
        });
    }
    static bytes flip(const bytes & a) {
        return each([&](int i) { return veorq_u8(a.v[i], vdupq_n_u8(0x80)); });
    }
    template <int mask, int by> static bytes bits(const bytes & h) {
        return each([&](int i) {
            uint8x16_t t = h.v[i];
            if constexpr (by > 0) {
                t = vshlq_n_u8(t, by);
            } else if constexpr (by < 0) {
                t = vshrq_n_u8(t, -by);
            }
            return vandq_u8(t, vdupq_n_u8(mask));
        });
    }
    template <int mask, int by> static bytes add_bits(const bytes & a, const bytes & h) {
        const bytes b = bits<mask, by>(h);
        return each([&](int i) { return vorrq_u8(a.v[i], b.v[i]); });
    }

    // 16-bit numbers: the lower half belongs to the first of a pair.
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
    DUO_INLINE static bf16s load_bf16s(const uint8_t * p) {
        return each([&](int i) { return vreinterpretq_bf16_u8(vld1q_u8(p + 16 * i)); });
    }
    template <int lane> static void dot_bf16(floats & s, const bf16s & w, uint32x4_t x) {
        DUO_UNROLL(4)
        for (int i = 0; i < n; ++i) {
            s.v[i] = vbfdotq_laneq_f32(s.v[i], w.v[i], vreinterpretq_bf16_u32(x), lane);
        }
    }
#else
    struct bf16s {
        floats even, odd;
    };
    DUO_INLINE static bf16s load_bf16s(const uint8_t * p) {
        const bytes v = load_bytes(p);
        return {each([&](int i) { return even_of(vreinterpretq_u32_u8(v.v[i])); }),
                each([&](int i) { return odd_of(vreinterpretq_u32_u8(v.v[i])); })};
    }
    // Converts pairs of bf16 to floats.
    static float32x4_t even_of(uint32x4_t v) { return vreinterpretq_f32_u32(vshlq_n_u32(v, 16)); }
    static float32x4_t odd_of(uint32x4_t v) { return vreinterpretq_f32_u32(vandq_u32(v, vdupq_n_u32(0xffff0000))); }
    template <int lane> static void dot_bf16(floats & s, const bf16s & w, uint32x4_t x) {
        fma_lane<lane>(s, w.even, even_of(x));
        fma_lane<lane>(s, w.odd, odd_of(x));
    }
#endif
    template <int lane> static void fma_lane(floats & s, const floats & w, float32x4_t x) {
        DUO_UNROLL(4)
        for (int i = 0; i < n; ++i) {
            s.v[i] = vfmaq_laneq_f32(s.v[i], w.v[i], x, lane);
        }
    }
};

template <class V> constexpr bool is_neon          = false;
template <int n> constexpr bool   is_neon<neon<n>> = true;
template <class V>
concept neon_type = is_neon<V>;

} // namespace
} // namespace duo::cpu
