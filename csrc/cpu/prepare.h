// Converts inputs to 8-bit codes or bf16. These are plain loops that the compiler vectorises for the instruction set.
// Like panel.h, they are compiled once per instruction set, and in an unnamed namespace for the same reason.
#pragma once

#include <cstring>

#include "kernel.h"

namespace duo::cpu {
namespace {

// Largest absolute value. Compares integers, because the compiler would not vectorise float comparisons, and because
// NaN then wins.
inline float largest(const float * x, int64_t n) {
    int32_t most = 0;
    for (int64_t i = 0; i < n; ++i) {
        int32_t bits;
        std::memcpy(&bits, x + i, 4);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    float f;
    std::memcpy(&f, &most, 4);
    return f;
}

// Nearest integers, ties to even: 1.5 * 2^23 pushes the fraction out of the mantissa.
inline void round_codes(const float * x, int64_t n, float inverse, int8_t * out) {
    for (int64_t i = 0; i < n; ++i) {
        const float f = x[i] * inverse + 12582912.0f;
        int32_t     bits;
        std::memcpy(&bits, &f, 4);
        out[i] = int8_t(bits);
    }
}

inline int32_t sum(const int8_t * q, int64_t n) {
    int32_t s = 0;
    for (int64_t i = 0; i < n; ++i) {
        s += q[i];
    }
    return s;
}

// n_group inputs share a scale; n_start codes share a start of -offset times their sum, or have none if n_start is 0;
// n_together codes are adjacent. also: other sums that the kind has.
enum class sums_kind : uint8_t { none, pairs, total };

template <int n_group, int n_start, int offset, sums_kind also, int n_together>
void prepare_q8(const float * x, int64_t k0, int64_t k1, int column, const tile & t) {
    auto *                  codes = static_cast<int8_t *>(const_cast<void *>(t.codes)) + column * n_together;
    auto *                  scale = const_cast<float *>(t.scale) + column;
    [[maybe_unused]] auto * start = const_cast<int32_t *>(t.start) + column;
    const auto              w     = int64_t(t.width);
    alignas(64) int8_t      q[n_group];
    for (int64_t k = k0; k < k1; k += n_group) {
        const int64_t n        = k1 - k < n_group ? k1 - k : n_group;
        const float   most     = largest(x + k, n);
        scale[k / n_group * w] = most / 127.0f;
        round_codes(x + k, n, most > 1e-30f ? 127.0f / most : 0.0f, q); // the scale preserves NaN and infinity
        for (int64_t i = 0; i < n; i += n_together) {
            std::memcpy(codes + (k + i) * w, q + i, n_together);
        }
        if constexpr (n_start > 0) {
            for (int64_t i = 0; i < n; i += n_start) {
                start[(k + i) / n_start * w] = -offset * sum(q + i, n_start);
            }
        }
        if constexpr (also == sums_kind::total) {
            const_cast<float *>(t.total)[k / n_group * w + column] = scale[k / n_group * w] * float(sum(q, n_group));
        }
        if constexpr (also == sums_kind::pairs) {
            for (int64_t i = 0; i < n; i += 64) {
                const int32_t a = sum(q + i, 32);
                const int32_t b = sum(q + i + 32, 32);
                const_cast<int32_t *>(t.pairs)[(k + i) / 64 * w + column] =
                    int32_t((uint32_t(a) & 0xffff) | (uint32_t(b) << 16));
            }
        }
    }
}

inline uint16_t to_bf16(float f) {
    uint32_t u;
    std::memcpy(&u, &f, 4);
    const bool nan = (u & 0x7fffffff) > 0x7f800000;
    return uint16_t(nan ? (u >> 16) | 64 : (u + (0x7fff + ((u >> 16) & 1))) >> 16);
}

inline void prepare_bf16(const float * x, int64_t k0, int64_t k1, int column, const tile & t) {
    auto * codes = static_cast<uint16_t *>(const_cast<void *>(t.codes));
    for (int64_t k = k0; k < k1; k += 2) {
        codes[(k * t.width) + column * 2]     = to_bf16(x[k]);
        codes[(k * t.width) + column * 2 + 1] = to_bf16(x[k + 1]);
    }
}

inline void prepare_f32(const float * x, int64_t k0, int64_t k1, int column, const tile & t) {
    auto * f = static_cast<float *>(const_cast<void *>(t.codes));
    for (int64_t k = k0; k < k1; ++k) {
        f[k * t.width + column] = x[k];
    }
}

} // namespace
} // namespace duo::cpu
