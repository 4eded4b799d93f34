// AVX2 with FMA and F16C (Haswell, Zen 1 and later). Compiled a second time with DUO_AVX_VNNI for machines that have
// the 8-bit product without AVX-512 (Alder Lake and later).
#include <immintrin.h>

#include "kernel_table.h"

namespace duo::cpu {
namespace {

struct vec {
    static constexpr int L       = 8;
    static constexpr int n_width = 4; // 16 registers
#if defined(DUO_AVX_VNNI)
    static constexpr bool signed_codes = false;
#else
    static constexpr bool signed_codes = true;
#endif
    using floats = __m256;
    using ints   = __m256i;
    using bytes  = __m256i;

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
    static floats load_u8(const uint8_t * p) {
        return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p))));
    }
    static floats load_s8(const uint8_t * p) {
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p))));
    }

    static bytes load_bytes(const uint8_t * p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)); }
    static bytes low(bytes v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
    static bytes high(bytes v) { return _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(15)); }
    static bytes look_up(bytes v) {
        return _mm256_shuffle_epi8(
            _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i *>(iq4_nl_codes))), v);
    }
    template <int mask, int by> static bytes add_bits(bytes v, bytes h) {
        const bytes t = by >= 0 ? _mm256_slli_epi16(h, by) : _mm256_srli_epi16(h, -by);
        return _mm256_or_si256(v, _mm256_and_si256(t, _mm256_set1_epi8(mask)));
    }

    static ints input(const int8_t * x) { return _mm256_set1_epi32(*reinterpret_cast<const int *>(x)); }

#if defined(DUO_AVX_VNNI)
    using prepared = bytes;
    static prepared prepare(bytes w) { return w; }
    static ints     dot(ints s, bytes w, const int8_t * x) { return _mm256_dpbusd_avx_epi32(s, w, input(x)); }
    static ints     dot_full(ints s, prepared w, const int8_t * x) { return dot(s, w, x); }
#else
    // A pair of products with codes of 8 bits overflows 16: the sign goes to the input, the code keeps 7 bits and -128.
    struct prepared {
        bytes w, magnitude;
    };
    static prepared prepare(bytes w) {
        const bytes s = _mm256_xor_si256(w, _mm256_set1_epi8(char(0x80)));
        return {s, _mm256_abs_epi8(s)};
    }
    static ints sum_pairs(ints s, ints pairs) {
        return _mm256_add_epi32(s, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    static ints dot(ints s, bytes w, const int8_t * x) { return sum_pairs(s, _mm256_maddubs_epi16(w, input(x))); }
    static ints dot_full(ints s, prepared w, const int8_t * x) {
        return sum_pairs(s, _mm256_maddubs_epi16(w.magnitude, _mm256_sign_epi8(input(x), w.w)));
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
        const __m256i v = _mm256_set1_epi32(*reinterpret_cast<const int *>(x));
        s               = _mm256_fmadd_ps(w.even, _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)), s);
        return _mm256_fmadd_ps(w.odd, _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32(int(0xffff0000)))), s);
    }
};

} // namespace

#if defined(DUO_AVX_VNNI)
const kernel_set kernels_avx_vnni = make_kernels<vec>("avx_vnni");
#else
const kernel_set kernels_avx2 = make_kernels<vec>("avx2");
#endif

} // namespace duo::cpu
