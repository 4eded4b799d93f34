// W floats, or the bits of them, that are worked on together: the compilers' vectors, or plain arrays where they have
// none.
#pragma once

#include <bit>
#include <cstdint>

namespace duo {

#if defined(__GNUC__) && !defined(DUO_PLAIN_LANES)

template <int W> struct lanes {
    using f [[gnu::vector_size(4 * W)]] = float;
    using u [[gnu::vector_size(4 * W)]] = uint32_t;
};

// Macros: a function of wide vectors has another calling convention without the processor's flag.
#define DUO_PICK_LARGER(a, b) ((b) > (a) ? (b) : (a))
#define DUO_AS(type, x) ((type)(x))

#else

template <class T, int W> struct plain_lanes {
    T v[W];

    T operator[](int i) const { return v[i]; }

    template <class F> static plain_lanes of(F each) {
        plain_lanes r;
        for (int i = 0; i < W; ++i) {
            r.v[i] = each(i);
        }
        return r;
    }
    static plain_lanes all(T x) {
        return of([=](int) { return x; });
    }

    using L = plain_lanes;
    friend L operator+(const L & a, const L & b) {
        return of([&](int i) { return T(a.v[i] + b.v[i]); });
    }
    friend L operator-(const L & a, const L & b) {
        return of([&](int i) { return T(a.v[i] - b.v[i]); });
    }
    friend L operator*(const L & a, const L & b) {
        return of([&](int i) { return T(a.v[i] * b.v[i]); });
    }
    friend L operator<<(const L & a, int n) {
        return of([&](int i) { return T(a.v[i] << n); });
    }
    friend L operator+(const L & a, T b) { return a + all(b); }
    friend L operator-(const L & a, T b) { return a - all(b); }
    friend L operator*(const L & a, T b) { return a * all(b); }
    L &      operator+=(const L & b) { return *this = *this + b; }
};

template <int W> struct lanes {
    using f = plain_lanes<float, W>;
    using u = plain_lanes<uint32_t, W>;
};

template <int W> plain_lanes<float, W> pick_larger(const plain_lanes<float, W> & a, const plain_lanes<float, W> & b) {
    return plain_lanes<float, W>::of([&](int i) { return b.v[i] > a.v[i] ? b.v[i] : a.v[i]; });
}

#define DUO_PICK_LARGER(a, b) ::duo::pick_larger(a, b)
#define DUO_AS(type, x) std::bit_cast<type>(x)

#endif

} // namespace duo
