// Randomness for tests: a seed gives the same case on every machine (std distributions do not promise that).
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

namespace duo_test {

inline uint64_t hash64(uint64_t x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

class dice {
  public:
    explicit dice(uint64_t seed) : state_(hash64(seed)) {}

    uint64_t next() { return hash64(state_++); }

    // 0..n-1
    uint32_t below(uint32_t n) { return uint32_t(next() % n); }

    // lo..hi
    int32_t between(int32_t lo, int32_t hi) { return lo + int32_t(below(uint32_t(hi - lo + 1))); }

    bool chance(double p) { return double(next() >> 11) * 0x1.0p-53 < p; }

  private:
    uint64_t state_;
};

// Nothing, a yield, or a short sleep: what shifts two threads against each other.
inline void loiter(uint64_t random, int32_t max_us) {
    switch (random % 4) {
        case 0:
            std::this_thread::yield();
            break;
        case 1:
            std::this_thread::sleep_for(std::chrono::microseconds((random >> 8) % uint64_t(max_us + 1)));
            break;
        default:
            break;
    }
}

} // namespace duo_test
