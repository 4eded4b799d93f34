// Sums across lanes and exponentials for attend.h.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace duo::cpu {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

// Lane i of the result: the sum of vector i's lanes.
template <class V> inline typename V::floats lane_sums(const typename V::floats (&v)[V::L]) {
    if constexpr (requires { V::lane_sums(v); }) {
        return V::lane_sums(v);
    } else {
        alignas(64) float t[V::L][V::L];
        alignas(64) float s[V::L];
        for (int i = 0; i < V::L; ++i) {
            V::store(t[i], v[i]);
        }
        for (int i = 0; i < V::L; ++i) {
            for (int half = V::L / 2; half > 0; half /= 2) {
                for (int j = 0; j < half; ++j) {
                    t[i][j] += t[i][j + half];
                }
            }
            s[i] = t[i][0];
        }
        return V::load(s);
    }
}

// s[i] = e^(s[i] - most), or 0 if that is below e^-87. Cephes' expf (Moshier, netlib.org/cephes) without branches: x is
// n ln 2 + r, a polynomial gives e^r, and n goes into the exponent. NaN stays NaN.
inline void exponentials(float * s, int64_t n, float most) {
    for (int64_t i = 0; i < n; ++i) {
        const float x    = s[i] - most;
        const float k    = x * 1.44269504088896341f + 12582912.0f; // 1.5 * 2^23: the low bits are the nearest integer
        const float f    = k - 12582912.0f;
        const float r    = (x - f * 0.693359375f) + f * 2.12194440e-4f;
        float       p    = 1.9875691500e-4f;
        p                = p * r + 1.3981999507e-3f;
        p                = p * r + 8.3334519073e-3f;
        p                = p * r + 4.1665795894e-2f;
        p                = p * r + 1.6666665459e-1f;
        p                = p * r + 5.0000001201e-1f;
        p                = p * (r * r) + r + 1.0f;
        const float to_n = std::bit_cast<float>((std::bit_cast<uint32_t>(k) - 0x4b400000u + 127u) << 23);
        s[i]             = x < -87.0f ? 0.0f : p * to_n;
    }
}

} // namespace
} // namespace duo::cpu
