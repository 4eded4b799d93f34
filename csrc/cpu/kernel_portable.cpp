// Kernels in plain C++: the reference that the others match bit by bit, and the set for machines without them.
#include <cmath>

#include "float16.h"
#include "kernel_table.h"
#if defined(DUO_X86)
#include "panel_tiles.h"
#include "tile_emulated.h"
#endif

namespace duo::cpu {
namespace {

struct raw {
    static constexpr int L       = 16;
    static constexpr int n_width = 4;
    struct floats {
        float v[L];
    };
    struct ints {
        int32_t v[L];
    };
    struct bytes {
        uint8_t v[4 * L];
    };

    template <class T, class F> static T make(F f) {
        T t;
        for (int i = 0; i < int(sizeof t.v / sizeof t.v[0]); ++i) {
            t.v[i] = f(i);
        }
        return t;
    }

    static floats load(const float * p) {
        return make<floats>([&](int i) { return p[i]; });
    }
    static void   store(float * p, const floats & x) { std::memcpy(p, x.v, sizeof x.v); }
    static floats zero() { return {}; }
    static ints   zero_i() { return {}; }
    static ints   load_i(const int32_t * p) {
        return make<ints>([&](int i) { return p[i]; });
    }
    static void store_i(int32_t * p, const ints & x) { std::memcpy(p, x.v, sizeof x.v); }
    static ints broadcast(const int32_t * p) {
        return make<ints>([&](int) { return *p; });
    }
    static floats broadcast_f(const float * p) {
        return make<floats>([&](int) { return *p; });
    }
    static floats add(const floats & a, const floats & b) {
        return make<floats>([&](int i) { return a.v[i] + b.v[i]; });
    }
    static floats mul(const floats & a, const floats & b) {
        return make<floats>([&](int i) { return a.v[i] * b.v[i]; });
    }
    static floats fma(const floats & a, const floats & b, const floats & c) {
        return make<floats>([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
    }
    static floats fnma(const floats & a, const floats & b, const floats & c) {
        return make<floats>([&](int i) { return std::fma(-a.v[i], b.v[i], c.v[i]); });
    }
    static floats to_float(const ints & a) {
        return make<floats>([&](int i) { return float(a.v[i]); });
    }
    static floats load_f16(const uint8_t * p) {
        return make<floats>([&](int i) { return float_of_half(p + 2 * i); });
    }
    static floats load_bf16(const uint8_t * p) {
        return make<floats>([&](int i) { return float_of_bf16(p + 2 * i); });
    }
    static floats load_u8(const uint8_t * p) {
        return make<floats>([&](int i) { return float(p[i]); });
    }
    static floats load_s8(const uint8_t * p) {
        return make<floats>([&](int i) { return float(int8_t(p[i])); });
    }

    static bytes load_bytes(const uint8_t * p) {
        return make<bytes>([&](int i) { return p[i]; });
    }
    static void  store_bytes(uint8_t * p, const bytes & x) { std::memcpy(p, x.v, sizeof x.v); }
    static bytes less(const bytes & a, uint8_t n) {
        return make<bytes>([&](int i) { return uint8_t(a.v[i] - n); });
    }
    static bytes low(const bytes & a) {
        return make<bytes>([&](int i) { return uint8_t(a.v[i] & 15); });
    }
    static bytes high(const bytes & a) {
        return make<bytes>([&](int i) { return uint8_t(a.v[i] >> 4); });
    }
    static bytes look_up(const uint8_t * table, const bytes & a) {
        return make<bytes>([&](int i) { return table[a.v[i]]; });
    }
    template <int mask, int by> static bytes bits(const bytes & h) {
        return make<bytes>([&](int i) {
            return uint8_t((by >= 0 ? h.v[i] << (by >= 0 ? by : 0) : h.v[i] >> (by < 0 ? -by : 0)) & mask);
        });
    }
    template <int mask, int by> static bytes add_bits(const bytes & a, const bytes & h) {
        const bytes b = bits<mask, by>(h);
        return make<bytes>([&](int i) { return uint8_t(a.v[i] | b.v[i]); });
    }

    static bytes first_digit(const bytes & a) {
        return make<bytes>([&](int i) { return uint8_t((a.v[i] * 3) >> 8); });
    }
    static bytes thrice(const bytes & a) {
        return make<bytes>([&](int i) { return uint8_t(a.v[i] * 3); });
    }
    static bytes load_each(const uint8_t * p) {
        return make<bytes>([&](int i) { return i % 4 == 0 ? p[i / 4] : uint8_t(0); });
    }
    static bytes load_two_each(const uint8_t * p) {
        return make<bytes>([&](int i) { return i % 4 < 2 ? p[i / 4 * 2 + i % 4] : uint8_t(0); });
    }
    template <int mask, int bit> static bytes add_where(const bytes & v, const bytes & h) {
        return make<bytes>([&](int i) {
            const bool set = ((h.v[i / 4 * 4 + bit / 8] >> (bit % 8)) & 1) != 0;
            return uint8_t(v.v[i] | (set ? mask : 0));
        });
    }
    // In each lane an entry of a table: see vector_avx512.h.
    template <int i, int mask, int by> static bytes entries(const uint32_t * table, const bytes & q, const bytes & h) {
        bytes found;
        for (int j = 0; j < L; ++j) {
            const int two = h.v[4 * j] | (h.v[4 * j + 1] << 8);
            const int up  = by >= 0 ? two << (by >= 0 ? by : 0) : two >> (by < 0 ? -by : 0);
            std::memcpy(found.v + 4 * j, table + (q.v[4 * j + i] | (up & mask)), 4);
        }
        return found;
    }

    static ints dot(const ints & s, const bytes & w, const int8_t * x) {
        return make<ints>([&](int i) {
            const uint8_t * u = w.v + 4 * i;
            return s.v[i] + u[0] * x[0] + u[1] * x[1] + u[2] * x[2] + u[3] * x[3];
        });
    }
    static ints load_pairs(const uint8_t * even, const uint8_t * odd) {
        return make<ints>([&](int i) { return int32_t(even[i] | (odd[i] << 16)); });
    }
    static ints dot_pairs(const ints & s, const ints & w, const int32_t * x) {
        return make<ints>([&](int i) {
            return s.v[i] + (w.v[i] & 0xffff) * int16_t(*x & 0xffff) + (w.v[i] >> 16) * int16_t(*x >> 16);
        });
    }

    struct bf16s {
        floats even, odd;
    };
    static bf16s load_bf16s(const uint8_t * p) {
        return {make<floats>([&](int i) { return float_of_bf16(p + 4 * i); }),
                make<floats>([&](int i) { return float_of_bf16(p + 4 * i + 2); })};
    }
    static floats dot_bf16(const floats & s, const bf16s & w, const uint16_t * x) {
        const float a = float_of_bf16(reinterpret_cast<const uint8_t *>(x));
        const float b = float_of_bf16(reinterpret_cast<const uint8_t *>(x + 1));
        return make<floats>([&](int i) { return std::fma(w.odd.v[i], b, std::fma(w.even.v[i], a, s.v[i])); });
    }
};

using vec = direct<raw>;

} // namespace

const kernel_set kernels_portable = make_kernels<vec>("portable");
#if defined(DUO_X86)
constinit const wide_kernels wide_amx_portable = make_wide<raw, emulated_tiles>();
#endif

} // namespace duo::cpu
