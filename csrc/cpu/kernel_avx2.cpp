// AVX2 with FMA and F16C (Haswell, Zen 1 and later). Compiled a second time with DUO_KERNEL_AVX_VNNI for machines with
// the 8-bit product but without AVX-512 (Alder Lake and later).
#include <immintrin.h>

#include "base/compiler.h"
#include "kernel_table.h"

namespace duo::cpu {
namespace {

#if !defined(DUO_KERNEL_AVX_VNNI)
// 16-bit sums of pairs of products, and the 32-bit sum into which they are moved.
template <int bits> struct sums_of {
    __m256i pairs, sum;
};
// 8-bit codes are multiplied in halves, because their pairs would overflow at once.
template <> struct sums_of<8> {
    __m256i low, high;
};
// Two pairs of 7-bit codes would overflow, too.
template <> struct sums_of<7> {
    __m256i sum;
};

template <int bits> struct codes_of {
    __m256i all;
};
template <> struct codes_of<8> {
    __m256i low, high;
};
#endif

struct half {
    static constexpr int L       = 8;
    static constexpr int n_width = 4; // 16 registers
    using floats                 = __m256;
    using ints                   = __m256i;
    using bytes                  = __m256i;

    static floats load(const float * p) { return _mm256_loadu_ps(p); }
    static void   store(float * p, floats v) { _mm256_storeu_ps(p, v); }
    static floats zero() { return _mm256_setzero_ps(); }
    static ints   zero_i() { return _mm256_setzero_si256(); }
    static ints   broadcast(const int32_t * p) { return _mm256_set1_epi32(*p); }
    static floats broadcast_f(const float * p) { return _mm256_set1_ps(*p); }
    static floats add(floats a, floats b) { return _mm256_add_ps(a, b); }
    static floats mul(floats a, floats b) { return _mm256_mul_ps(a, b); }
    static floats fma(floats a, floats b, floats c) { return _mm256_fmadd_ps(a, b, c); }
    static floats fnma(floats a, floats b, floats c) { return _mm256_fnmadd_ps(a, b, c); }
    static floats to_float(ints v) { return _mm256_cvtepi32_ps(v); }
    static floats load_f16(const uint8_t * p) {
        return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
    }
    static floats load_bf16(const uint8_t * p) {
        return _mm256_castsi256_ps(
            _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))), 16));
    }
    static floats load_u8(const uint8_t * p) {
        return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p))));
    }
    static floats load_s8(const uint8_t * p) {
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p))));
    }

    static floats lane_sums(const floats (&v)[8]) {
        const auto four = [&](int i) {
            return _mm256_hadd_ps(_mm256_hadd_ps(v[i], v[i + 1]), _mm256_hadd_ps(v[i + 2], v[i + 3]));
        };
        const floats a = four(0);
        const floats b = four(4);
        return add(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
    }

    static bytes load_bytes(const uint8_t * p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)); }
    static bytes low(bytes v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
    static bytes high(bytes v) { return _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(15)); }
    static bytes look_up(const uint8_t * table, bytes v) {
        return _mm256_shuffle_epi8(
            _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i *>(table))), v);
    }
    template <int mask, int by> static bytes bits(bytes h) {
        const bytes t = by >= 0 ? _mm256_slli_epi16(h, by) : _mm256_srli_epi16(h, -by);
        return _mm256_and_si256(t, _mm256_set1_epi8(mask));
    }
    template <int mask, int by> static bytes add_bits(bytes v, bytes h) {
        return _mm256_or_si256(v, bits<mask, by>(h));
    }

    static bytes first_digit(bytes v) {
        const bytes one = _mm256_set1_epi8(1);
        return _mm256_add_epi8(_mm256_min_epu8(_mm256_subs_epu8(v, _mm256_set1_epi8(85)), one),
                               _mm256_min_epu8(_mm256_subs_epu8(v, _mm256_set1_epi8(char(170))), one));
    }
    static bytes thrice(bytes v) { return _mm256_add_epi8(v, _mm256_add_epi8(v, v)); }
    static bytes load_each(const uint8_t * p) {
        return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p)));
    }
    static bytes load_two_each(const uint8_t * p) {
        return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
    }
    template <int mask, int bit> static bytes add_where(bytes v, bytes h) {
        const bytes t = _mm256_srai_epi32(_mm256_slli_epi32(h, 31 - bit), 31);
        return _mm256_or_si256(v, _mm256_and_si256(t, _mm256_set1_epi8(char(mask))));
    }
    template <int i, int mask, int by> static bytes entries(const uint32_t * table, bytes q, bytes h) {
        const bytes low =
            i == 3 ? _mm256_srli_epi32(q, 24) : _mm256_and_si256(_mm256_srli_epi32(q, 8 * i), _mm256_set1_epi32(255));
        const bytes up = by >= 0 ? _mm256_slli_epi32(h, by) : _mm256_srli_epi32(h, -by);
        const bytes at = mask == 0 ? low : _mm256_or_si256(low, _mm256_and_si256(up, _mm256_set1_epi32(mask)));
        return _mm256_i32gather_epi32(reinterpret_cast<const int *>(table), at, 4);
    }

    static ints input(const int8_t * x) { return _mm256_set1_epi32(load32(x)); }

#if defined(DUO_KERNEL_AVX_VNNI)
    static ints dot(ints s, bytes w, const int8_t * x) { return _mm256_dpbusd_avx_epi32(s, w, input(x)); }

#else
    // Products of two codes and two inputs are summed in 16 bits, as long as the sums cannot overflow.
    static ints sum_pairs(ints s, ints pairs, int times) {
        return _mm256_add_epi32(s, _mm256_madd_epi16(pairs, _mm256_set1_epi16(short(times))));
    }

    // Otherwise GCC turns the chain of additions into a tree and runs out of registers.
    static ints keep(ints v) {
        DUO_OPAQUE_VECTOR(v);
        return v;
    }

    template <int bits> using partial = sums_of<bits>;
    template <int bits> using codes   = codes_of<bits>;
    template <int bits> static codes<bits> prepare(bytes w) {
        if constexpr (bits == 8) {
            return {low(w), high(w)};
        } else {
            return {w};
        }
    }
    template <int bits> static partial<bits> begin(const int32_t * start) {
        if constexpr (bits == 8) {
            return {zero_i(), zero_i()};
        } else if constexpr (bits == 7) {
            return {broadcast(start)};
        } else {
            return {zero_i(), broadcast(start)};
        }
    }
    template <int bits> static void add(partial<bits> & s, const codes<bits> & w, const int8_t * x) {
        const bytes v = input(x);
        if constexpr (bits == 8) {
            s.low  = keep(_mm256_add_epi16(s.low, _mm256_maddubs_epi16(w.low, v)));
            s.high = keep(_mm256_add_epi16(s.high, _mm256_maddubs_epi16(w.high, v)));
        } else if constexpr (bits == 7) {
            s.sum = keep(sum_pairs(s.sum, _mm256_maddubs_epi16(w.all, v), 1));
        } else {
            s.pairs = keep(_mm256_add_epi16(s.pairs, _mm256_maddubs_epi16(w.all, v)));
        }
    }
    template <int bits> static void settle(partial<bits> & s) {
        s.sum   = sum_pairs(s.sum, s.pairs, 1);
        s.pairs = zero_i();
    }
    template <int bits> static ints finish(const partial<bits> & s, const int32_t * start) {
        if constexpr (bits == 8) {
            return sum_pairs(sum_pairs(broadcast(start), s.low, 1), s.high, 16);
        } else if constexpr (bits == 7) {
            return s.sum;
        } else {
            return sum_pairs(s.sum, s.pairs, 1);
        }
    }
#endif
    static ints load_pairs(const uint8_t * even, const uint8_t * odd) {
        const ints a = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(even)));
        const ints b = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(odd)));
        return _mm256_or_si256(a, _mm256_slli_epi32(b, 16));
    }
    static ints dot_pairs(ints s, ints w, const int32_t * x) {
        return _mm256_add_epi32(s, _mm256_madd_epi16(w, _mm256_set1_epi32(*x)));
    }

    struct bf16s {
        floats even, odd;
    };
    static bf16s load_bf16s(const uint8_t * p) {
        const __m256i v = load_bytes(p);
        return {_mm256_castsi256_ps(_mm256_slli_epi32(v, 16)),
                _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32(int(0xffff0000))))};
    }
    static floats dot_bf16(floats s, bf16s w, const uint16_t * x) {
        const __m256i v = _mm256_set1_epi32(load32(x));
        s               = _mm256_fmadd_ps(w.even, _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)), s);
        return _mm256_fmadd_ps(w.odd, _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32(int(0xffff0000)))), s);
    }
};

#if defined(DUO_KERNEL_AVX_VNNI)
using vec = direct<half>;
#else
using vec = half;
#endif

} // namespace

#if defined(DUO_KERNEL_AVX_VNNI)
const kernel_set kernels_avx_vnni = make_kernels<vec>("avx_vnni");
#else
const kernel_set kernels_avx2 = make_kernels<vec>("avx2");
#endif

} // namespace duo::cpu
