// The vector type of AVX-512 with VNNI (Ice Lake, Zen 4 and later): 64 products of 8-bit codes in one instruction; with
// DUO_KERNEL_AVX512_BF16 for machines that can also multiply pairs of bf16.
#pragma once

#include <immintrin.h>

#include "base/compiler.h"
#include "kernel_table.h"

namespace duo::cpu {
namespace {

struct raw {
    static constexpr int L       = 16;
    static constexpr int n_width = 8;
    using floats                 = __m512;
    using ints                   = __m512i;
    using bytes                  = __m512i;

    static floats load(const float * p) { return _mm512_loadu_ps(p); }
    static void   store(float * p, floats v) { _mm512_storeu_ps(p, v); }
    static floats zero() { return _mm512_setzero_ps(); }
    static ints   zero_i() { return _mm512_setzero_si512(); }
    static ints   load_i(const int32_t * p) { return _mm512_load_si512(p); }
    static void   store_i(int32_t * p, ints v) { _mm512_store_si512(p, v); }
    static ints   broadcast(const int32_t * p) { return _mm512_set1_epi32(*p); }
    static floats broadcast_f(const float * p) { return _mm512_set1_ps(*p); }
    static floats add(floats a, floats b) { return _mm512_add_ps(a, b); }
    static floats mul(floats a, floats b) { return _mm512_mul_ps(a, b); }
    static floats fma(floats a, floats b, floats c) { return _mm512_fmadd_ps(a, b, c); }
    static floats fnma(floats a, floats b, floats c) { return _mm512_fnmadd_ps(a, b, c); }
    static floats to_float(ints v) { return _mm512_cvtepi32_ps(v); }
    static floats load_f16(const uint8_t * p) {
        return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
    }
    static floats load_bf16(const uint8_t * p) {
        return _mm512_castsi512_ps(
            _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p))), 16));
    }
    static floats load_u8(const uint8_t * p) {
        return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))));
    }
    static floats load_s8(const uint8_t * p) {
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))));
    }

    // A quarter of a register is four lanes. Adds pairs of vectors until each quarter holds sums of four, then adds the
    // quarters.
    static floats lane_sums(const floats (&v)[16]) {
        floats s[8];
        DUO_UNROLL(8)
        for (int i = 0; i < 8; ++i) {
            s[i] = add(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]), _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]));
        }
        DUO_UNROLL(4)
        for (int i = 0; i < 4; ++i) {
            const __m512d a = _mm512_castps_pd(s[2 * i]);
            const __m512d b = _mm512_castps_pd(s[2 * i + 1]);
            s[i] = add(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
        }
        const auto quarters = [](floats a, floats b) {
            return add(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
        };
        return quarters(quarters(s[0], s[1]), quarters(s[2], s[3]));
    }

    static bytes load_bytes(const uint8_t * p) { return _mm512_loadu_si512(p); }
    static void  store_bytes(uint8_t * p, bytes v) { _mm512_store_si512(p, v); }
    static bytes less(bytes v, uint8_t n) { return _mm512_sub_epi8(v, _mm512_set1_epi8(char(n))); }
    static bytes low(bytes v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
    static bytes high(bytes v) { return _mm512_and_si512(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(15)); }
    static bytes look_up(const uint8_t * table, bytes v) {
        return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i *>(table))), v);
    }
    // h shifted left by `by`, or right if negative, and masked
    template <int mask, int by> static bytes bits(bytes h) {
        const bytes t = by >= 0 ? _mm512_slli_epi16(h, unsigned(by)) : _mm512_srli_epi16(h, unsigned(-by));
        return _mm512_and_si512(t, _mm512_set1_epi8(mask));
    }
    // v | bits(h)
    template <int mask, int by> static bytes add_bits(bytes v, bytes h) {
        const bytes t = by >= 0 ? _mm512_slli_epi16(h, unsigned(by)) : _mm512_srli_epi16(h, unsigned(-by));
        return _mm512_ternarylogic_epi32(v, t, _mm512_set1_epi8(mask), 0xf8);
    }

    // TQ1_0: the digit before the point of v * 3 / 256, and v * 3 modulo 256.
    static bytes first_digit(bytes v) {
        const bytes one = _mm512_set1_epi8(1);
        return _mm512_add_epi8(_mm512_min_epu8(_mm512_subs_epu8(v, _mm512_set1_epi8(85)), one),
                               _mm512_min_epu8(_mm512_subs_epu8(v, _mm512_set1_epi8(char(170))), one));
    }
    static bytes thrice(bytes v) { return _mm512_add_epi8(v, _mm512_add_epi8(v, v)); }
    // In each lane a byte.
    static bytes load_each(const uint8_t * p) {
        return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
    }
    // In each lane two bytes.
    static bytes load_two_each(const uint8_t * p) {
        return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
    }
    // v | mask in the bytes of lanes with this bit in h
    template <int mask, int bit> static bytes add_where(bytes v, bytes h) {
        const bytes t = _mm512_srai_epi32(_mm512_slli_epi32(h, 31 - bit), 31);
        return _mm512_ternarylogic_epi32(v, t, _mm512_set1_epi8(char(mask)), 0xf8);
    }
    // In each lane an entry of a table. Its index has byte i of q, and above it those bits of h, shifted, that the mask
    // leaves.
    template <int i, int mask, int by> static bytes entries(const uint32_t * table, bytes q, bytes h) {
        const bytes low =
            i == 3 ? _mm512_srli_epi32(q, 24) : _mm512_and_si512(_mm512_srli_epi32(q, 8 * i), _mm512_set1_epi32(255));
        const bytes up = by >= 0 ? _mm512_slli_epi32(h, unsigned(by)) : _mm512_srli_epi32(h, unsigned(-by));
        const bytes at = mask == 0 ? low : _mm512_ternarylogic_epi32(low, up, _mm512_set1_epi32(mask), 0xf8);
        return _mm512_i32gather_epi32(at, table, 4);
    }

    static ints dot(ints s, bytes w, const int8_t * x) {
        return _mm512_dpbusd_epi32(s, w, _mm512_set1_epi32(load32(x)));
    }
    static ints load_pairs(const uint8_t * even, const uint8_t * odd) {
        const ints a = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(even)));
        const ints b = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(odd)));
        return _mm512_or_si512(a, _mm512_slli_epi32(b, 16));
    }
    static ints dot_pairs(ints s, ints w, const int32_t * x) {
        return _mm512_dpwssd_epi32(s, w, _mm512_set1_epi32(*x));
    }

#if defined(DUO_KERNEL_AVX512_BF16)
    using bf16s = __m512bh;
    static bf16s  load_bf16s(const uint8_t * p) { return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p)); }
    static floats dot_bf16(floats s, bf16s w, const uint16_t * x) {
        return _mm512_dpbf16_ps(s, w, reinterpret_cast<__m512bh>(_mm512_set1_epi32(load32(x))));
    }
#else
    struct bf16s {
        floats even, odd;
    };
    static bf16s load_bf16s(const uint8_t * p) {
        const __m512i v = _mm512_loadu_si512(p);
        return {_mm512_castsi512_ps(_mm512_slli_epi32(v, 16)),
                _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32(int(0xffff0000))))};
    }
    static floats dot_bf16(floats s, bf16s w, const uint16_t * x) {
        const __m512i v = _mm512_set1_epi32(load32(x));
        s               = _mm512_fmadd_ps(w.even, _mm512_castsi512_ps(_mm512_slli_epi32(v, 16)), s);
        return _mm512_fmadd_ps(w.odd, _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32(int(0xffff0000)))), s);
    }
#endif
};

} // namespace
} // namespace duo::cpu
