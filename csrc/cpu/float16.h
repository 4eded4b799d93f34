// Converts half and bf16 to float in plain C++, for code without an instruction set.
#pragma once

#include <cstdint>
#include <cstring>

namespace duo::cpu {
namespace {

inline float float_of_bits(uint32_t u) {
    float f;
    std::memcpy(&f, &u, 4);
    return f;
}

// IEEE 754 binary16, little-endian.
inline float float_of_half(const uint8_t * p) {
    const uint32_t h    = uint32_t(p[0]) | (uint32_t(p[1]) << 8);
    const uint32_t sign = (h & 0x8000) << 16;
    const uint32_t rest = h & 0x7fff;
    if (rest >= 0x7c00) { // infinity, NaN
        return float_of_bits(sign | 0x7f800000 | ((rest & 0x3ff) << 13));
    }
    if (rest < 0x400) { // subnormal: rest * 2^-24
        const float f = float(rest) * float_of_bits(0x33800000);
        return sign != 0 ? -f : f;
    }
    return float_of_bits(sign | ((rest << 13) + 0x38000000));
}

// The nearest; of two, the even one. Little-endian.
[[maybe_unused]] inline uint16_t half_of_float(float f) {
    uint32_t u;
    std::memcpy(&u, &f, 4);
    const auto     sign = uint16_t((u >> 16) & 0x8000);
    const uint32_t rest = u & 0x7fffffff;
    if (rest > 0x7f800000) {
        return uint16_t(sign | 0x7e00);
    }
    if (rest >= 0x477ff000) { // 65520
        return uint16_t(sign | 0x7c00);
    }
    if (rest < 0x38800000) { // below 2^-14: adding 1/2 leaves a multiple of 2^-24
        const float half = float_of_bits(rest) + 0.5f;
        std::memcpy(&u, &half, 4);
        return uint16_t(sign | (u - 0x3f000000));
    }
    return uint16_t(sign | ((rest - 0x38000000 + 0xfff + ((rest >> 13) & 1)) >> 13));
}

inline float float_of_bf16(const uint8_t * p) {
    return float_of_bits((uint32_t(p[0]) << 16) | (uint32_t(p[1]) << 24));
}

} // namespace
} // namespace duo::cpu
