// Sums of a block for an instruction set that adds products of 8-bit codes directly to 32-bit sums, so a block is just
// this sum. R is the rest of a vector type, with dot().
#pragma once

#include "format.h"

namespace duo::cpu {
namespace {

template <class R> struct direct : R {
    using ints  = typename R::ints;
    using bytes = typename R::bytes;
    using R::add; // the one for floats

    template <int> using partial = ints;
    template <int> using codes   = bytes;
    template <int> static bytes prepare(bytes w) { return w; }
    template <int> static ints  begin(const int32_t * start) { return R::broadcast(start); }
    template <int> static void  add(ints & s, const bytes & w, const int8_t * x) { s = R::dot(s, w, x); }
    template <int> static void  settle(ints &) {}
    template <int> static ints  finish(const ints & s, const int32_t *) { return s; }
};

} // namespace
} // namespace duo::cpu
