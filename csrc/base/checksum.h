// A fast checksum that detects damage. It does not protect against forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace duo {

// Each step is reversible for a fixed sum, so one changed word always changes the result. Four lanes do not wait for
// each other's multiplication.
inline uint64_t checksum(const void * data, size_t n, uint64_t seed = 0) {
    constexpr uint64_t factor = 0x9e3779b97f4a7c15; // odd
    const auto *       p      = static_cast<const uint8_t *>(data);
    uint64_t           lane[4];
    for (uint64_t i = 0; i < 4; ++i) {
        lane[i] = (seed + i + 1) * factor;
    }
    const auto mix = [](uint64_t sum, uint64_t word) {
        sum = (sum ^ word) * factor;
        return sum ^ (sum >> 29);
    };
    size_t at = 0;
    for (; at + 32 <= n; at += 32) {
        for (size_t i = 0; i < 4; ++i) {
            uint64_t word;
            std::memcpy(&word, p + at + 8 * i, 8);
            lane[i] = mix(lane[i], word);
        }
    }
    uint64_t sum = n;
    for (const uint64_t l : lane) {
        sum = mix(sum, l);
    }
    for (; at < n; at += 8) {
        uint64_t word = 0;
        std::memcpy(&word, p + at, n - at < 8 ? n - at : 8);
        sum = mix(sum, word);
    }
    return sum;
}

} // namespace duo
