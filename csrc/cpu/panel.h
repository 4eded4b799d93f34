// The kernels, written once over a small vector type V and compiled once per instruction set. Everything is in an
// unnamed namespace: code made for one instruction set must never be linked into another.
//
// V::L lanes; V::bytes holds four codes of each lane. A panel of 16 rows is walked 16 / L times. Work on all inputs of
// a tile is in separate functions, which a vector type may overload.
#pragma once

#include <cstring>

#include "base/compiler.h"
#include "kernel.h"
#include "panel_codes.h"

namespace duo::cpu {
namespace {

// Loads any four bytes; the compiler folds this load into a broadcast.
[[maybe_unused]] inline int load32(const void * p) {
    int v;
    std::memcpy(&v, p, 4);
    return v;
}

template <int i> struct constant {
    static constexpr int value = i;
};

// f(constant<0>) ... f(constant<n - 1>): a loop whose counter may stand in a template argument.
template <int n, int i = 0, class F> DUO_INLINE void unrolled(F f) {
    if constexpr (i < n) {
        f(constant<i>{});
        unrolled<n, i + 1>(f);
    }
}

template <class V, int N> struct sums {
    typename V::floats v[N];
};

template <class V, int N> inline sums<V, N> no_sums() {
    sums<V, N> s;
    DUO_UNROLL(8)
    for (int c = 0; c < N; ++c) {
        s.v[c] = V::zero();
    }
    return s;
}

template <class V, int N> inline sums<V, N> load_sums(const float * acc, int lane) {
    sums<V, N> s;
    DUO_UNROLL(8)
    for (int c = 0; c < N; ++c) {
        s.v[c] = V::load(acc + c * n_lanes + lane);
    }
    return s;
}

template <class V, int N> inline void store_sums(const sums<V, N> & s, float * acc, int lane) {
    DUO_UNROLL(8)
    for (int c = 0; c < N; ++c) {
        V::store(acc + c * n_lanes + lane, s.v[c]);
    }
}

// Integer sums of a block, whose codes have `bits` bits.
template <class V, int N, int bits> struct block {
    typename V::template partial<bits> v[N];
};

// start: the initial value of each input's sum.
template <class V, int N, int bits> inline void begin(block<V, N, bits> & s, const int32_t * start) {
    DUO_UNROLL(8)
    for (int c = 0; c < N; ++c) {
        s.v[c] = V::template begin<bits>(start + c);
    }
}

// Eight columns of a panel, four in each of lo and hi, times the N inputs.
template <class V, int N, int bits>
inline void dot(block<V, N, bits> & s, const typename V::bytes & lo, const typename V::bytes & hi, const int8_t * x) {
    const typename V::template codes<bits> p = V::template prepare<bits>(lo);
    DUO_UNROLL(8)
    for (int c = 0; c < N; ++c) {
        V::template add<bits>(s.v[c], p, x + c * 4);
    }
    const typename V::template codes<bits> q = V::template prepare<bits>(hi);
    DUO_UNROLL(8)
    for (int c = 0; c < N; ++c) {
        V::template add<bits>(s.v[c], q, x + (N + c) * 4);
    }
}

// The start of sums whose codes have no offset.
alignas(64) constexpr int32_t no_start[n_width_most] = {};

// Call this before sums can overflow: after 32 columns for 8-bit codes and those of at most 4 bits, 16 for 5-bit codes,
// 8 for 6-bit codes.
template <class V, int N, int bits> inline void settle(block<V, N, bits> & s) {
    DUO_UNROLL(8)
    for (int c = 0; c < N; ++c) {
        V::template settle<bits>(s.v[c]);
    }
}

template <class V, int N> struct ints {
    typename V::ints v[N];
};

template <class V, int N, int bits> inline ints<V, N> finish(const block<V, N, bits> & s, const int32_t * start) {
    ints<V, N> out;
    DUO_UNROLL(8)
    for (int c = 0; c < N; ++c) {
        out.v[c] = V::template finish<bits>(s.v[c], start + c);
    }
    return out;
}

template <class V, int N> inline void add_scaled(sums<V, N> & to, const ints<V, N> & s, typename V::floats scale) {
    DUO_UNROLL(8)
    for (int c = 0; c < N; ++c) {
        to.v[c] = V::fma(V::to_float(s.v[c]), scale, to.v[c]);
    }
}

// The same if each input has its own scale for the block.
template <class V, int N>
inline void add_scaled(sums<V, N> & to, const ints<V, N> & s, typename V::floats d, const float * scale) {
    DUO_UNROLL(8)
    for (int c = 0; c < N; ++c) {
        to.v[c] = V::fma(V::to_float(s.v[c]), V::mul(d, V::broadcast_f(scale + c)), to.v[c]);
    }
}

// The same for the scaled sums of a unit's blocks.
template <class V, int N>
DUO_INLINE void add_scaled(sums<V, N> & to, const sums<V, N> & part, typename V::floats d, const float * scale) {
    DUO_UNROLL(8)
    for (int c = 0; c < N; ++c) {
        to.v[c] = V::fma(part.v[c], V::mul(d, V::broadcast_f(scale + c)), to.v[c]);
    }
}

// Adds a block's minimum, times each input's sum of the block.
template <class V, int N> inline void add_minima(sums<V, N> & to, typename V::floats least, const float * total) {
    DUO_UNROLL(8)
    for (int c = 0; c < N; ++c) {
        to.v[c] = V::fma(least, V::broadcast_f(total + c), to.v[c]);
    }
}

// Asks for the lines of a panel that will be read next but a few thousand bytes: hardware prefetchers stop at the end
// of a page of 4 KB, and some formats' rhythm they never learn (see read_ahead in product.h).
template <int n_lines> DUO_INLINE void prefetch(const uint8_t * p, const tile & x) {
    DUO_UNROLL(8)
    for (int i = 0; i < n_lines; ++i) {
        DUO_PREFETCH(p + x.ahead + i * 64);
    }
}

template <class V, int N> void panel_q8_0(const uint8_t * w0, const tile & x, int64_t k0, int64_t n_k, float * acc) {
    for (int lane = 0; lane < n_lanes; lane += V::L) {
        sums<V, N>      out   = load_sums<V, N>(acc, lane);
        const uint8_t * w     = w0;
        const auto *    codes = static_cast<const int8_t *>(x.codes) + k0 * N;
        const float *   scale = x.scale + k0 / 32 * N;
        const int32_t * start = x.start + k0 / 32 * N;
        for (int64_t k = 0; k < n_k; k += 64, w += 1088) {
            prefetch<1>(w, x);
            for (int b = 0; b < 2; ++b) {
                block<V, N, 8>  s;
                const uint8_t * q = w + 64 + b * 512 + lane * 4;
                begin(s, start);
                DUO_UNROLL(4)
                for (int i = 0; i < 8; i += 2) {
                    prefetch<2>(q + i * 64, x);
                    dot(s, V::load_bytes(q + i * 64), V::load_bytes(q + i * 64 + 64), codes + i * 4 * N);
                }
                add_scaled<V, N>(out, finish(s, start), V::load_f16(w + b * 32 + lane * 2), scale);
                codes += 32 * N;
                scale += N;
                start += N;
            }
        }
        store_sums<V, N>(out, acc, lane);
    }
}

// Q4_0, IQ4_NL and MXFP4: codes of four bits, which may be indices into a table.
template <class V, int N, code_table table>
void panel_q4(const uint8_t * w0, const tile & x, int64_t k0, int64_t n_k, float * acc) {
    constexpr int bits = table_of<table>::bits;
    for (int lane = 0; lane < n_lanes; lane += V::L) {
        sums<V, N>      out   = load_sums<V, N>(acc, lane);
        const uint8_t * w     = w0;
        const auto *    codes = static_cast<const int8_t *>(x.codes) + k0 * N;
        const float *   scale = x.scale + k0 / 32 * N;
        const int32_t * start = x.start + k0 / 32 * N;
        for (int64_t k = 0; k < n_k; k += 64, w += 576) {
            prefetch<1>(w, x);
            for (int b = 0; b < 2; ++b) {
                block<V, N, bits> s;
                const uint8_t *   q = w + 64 + b * 256 + lane * 4;
                begin(s, start);
                DUO_UNROLL(4)
                for (int i = 0; i < 4; ++i) {
                    prefetch<1>(q + i * 64, x);
                    const eight_columns<V> c = codes_q4<V, table>(q + i * 64);
                    dot(s, c.lo, c.hi, codes + i * 8 * N);
                    if constexpr (bits == 5) {
                        if (i == 1) {
                            settle(s);
                        }
                    }
                }
                add_scaled<V, N>(out, finish(s, start), scale_q4<V, table>(w + b * 32 + lane * 2), scale);
                codes += 32 * N;
                scale += N;
                start += N;
            }
        }
        store_sums<V, N>(out, acc, lane);
    }
}

} // namespace
} // namespace duo::cpu
