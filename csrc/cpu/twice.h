// Builds a vector type with twice as many lanes from one that holds half a panel. Memory limits narrow tiles, and with
// all 16 rows at once every cache line is read only once.
#pragma once

#include "format.h"

namespace duo::cpu {
namespace {

template <class H> struct twice {
    static constexpr int L = 2 * H::L;
    template <class T> struct both {
        T a, b;
    };
    using floats = both<typename H::floats>;
    using ints   = both<typename H::ints>;
    using bytes  = both<typename H::bytes>;
    using bf16s  = both<typename H::bf16s>;

    template <int bits> using partial = both<typename H::template partial<bits>>;
    template <int bits> using codes   = both<typename H::template codes<bits>>;

    static floats load(const float * p) { return {H::load(p), H::load(p + H::L)}; }
    static void   store(float * p, const floats & v) {
        H::store(p, v.a);
        H::store(p + H::L, v.b);
    }
    static floats zero() { return {H::zero(), H::zero()}; }
    static ints   zero_i() { return {H::zero_i(), H::zero_i()}; }
    static floats broadcast_f(const float * p) { return {H::broadcast_f(p), H::broadcast_f(p)}; }
    static floats add(const floats & x, const floats & y) { return {H::add(x.a, y.a), H::add(x.b, y.b)}; }
    static floats mul(const floats & x, const floats & y) { return {H::mul(x.a, y.a), H::mul(x.b, y.b)}; }
    static floats fma(const floats & x, const floats & y, const floats & z) {
        return {H::fma(x.a, y.a, z.a), H::fma(x.b, y.b, z.b)};
    }
    static floats fnma(const floats & x, const floats & y, const floats & z) {
        return {H::fnma(x.a, y.a, z.a), H::fnma(x.b, y.b, z.b)};
    }
    static floats to_float(const ints & v) { return {H::to_float(v.a), H::to_float(v.b)}; }
    static floats load_f16(const uint8_t * p) { return {H::load_f16(p), H::load_f16(p + 2 * H::L)}; }
    static floats load_bf16(const uint8_t * p) { return {H::load_bf16(p), H::load_bf16(p + 2 * H::L)}; }
    static floats load_u8(const uint8_t * p) { return {H::load_u8(p), H::load_u8(p + H::L)}; }
    static floats load_s8(const uint8_t * p) { return {H::load_s8(p), H::load_s8(p + H::L)}; }

    static bytes load_bytes(const uint8_t * p) { return {H::load_bytes(p), H::load_bytes(p + 4 * H::L)}; }
    static bytes low(const bytes & v) { return {H::low(v.a), H::low(v.b)}; }
    static bytes high(const bytes & v) { return {H::high(v.a), H::high(v.b)}; }
    static bytes look_up(const uint8_t * table, const bytes & v) {
        return {H::look_up(table, v.a), H::look_up(table, v.b)};
    }
    template <int mask, int by> static bytes bits(const bytes & h) {
        return {H::template bits<mask, by>(h.a), H::template bits<mask, by>(h.b)};
    }
    template <int mask, int by> static bytes add_bits(const bytes & v, const bytes & h) {
        return {H::template add_bits<mask, by>(v.a, h.a), H::template add_bits<mask, by>(v.b, h.b)};
    }

    static bytes first_digit(const bytes & v) { return {H::first_digit(v.a), H::first_digit(v.b)}; }
    static bytes thrice(const bytes & v) { return {H::thrice(v.a), H::thrice(v.b)}; }
    static bytes load_each(const uint8_t * p) { return {H::load_each(p), H::load_each(p + H::L)}; }
    static bytes load_two_each(const uint8_t * p) { return {H::load_two_each(p), H::load_two_each(p + 2 * H::L)}; }
    template <int mask, int bit> static bytes add_where(const bytes & v, const bytes & h) {
        return {H::template add_where<mask, bit>(v.a, h.a), H::template add_where<mask, bit>(v.b, h.b)};
    }
    template <int i, int mask, int by> static bytes entries(const uint32_t * table, const bytes & q, const bytes & h) {
        return {H::template entries<i, mask, by>(table, q.a, h.a), H::template entries<i, mask, by>(table, q.b, h.b)};
    }

    template <int bits> static codes<bits> prepare(const bytes & w) {
        return {H::template prepare<bits>(w.a), H::template prepare<bits>(w.b)};
    }
    template <int bits> static partial<bits> begin(const int32_t * start) {
        return {H::template begin<bits>(start), H::template begin<bits>(start)};
    }
    template <int bits> static void add(partial<bits> & s, const codes<bits> & w, const int8_t * x) {
        H::template add<bits>(s.a, w.a, x);
        H::template add<bits>(s.b, w.b, x);
    }
    template <int bits> static void settle(partial<bits> & s) {
        H::template settle<bits>(s.a);
        H::template settle<bits>(s.b);
    }
    template <int bits> static ints finish(const partial<bits> & s, const int32_t * start) {
        return {H::template finish<bits>(s.a, start), H::template finish<bits>(s.b, start)};
    }

    static ints load_pairs(const uint8_t * even, const uint8_t * odd) {
        return {H::load_pairs(even, odd), H::load_pairs(even + H::L, odd + H::L)};
    }
    static ints dot_pairs(const ints & s, const ints & w, const int32_t * x) {
        return {H::dot_pairs(s.a, w.a, x), H::dot_pairs(s.b, w.b, x)};
    }
    static bf16s  load_bf16s(const uint8_t * p) { return {H::load_bf16s(p), H::load_bf16s(p + 4 * H::L)}; }
    static floats dot_bf16(const floats & s, const bf16s & w, const uint16_t * x) {
        return {H::dot_bf16(s.a, w.a, x), H::dot_bf16(s.b, w.b, x)};
    }
};

} // namespace
} // namespace duo::cpu
