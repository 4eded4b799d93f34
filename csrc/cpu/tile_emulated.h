// The interface of tile_registers over tile_machine, for machines without tile registers.
#pragma once

#include "tile_machine.h"

namespace duo::cpu {
namespace {

struct emulated_tiles {
    static void configure(const tile_config & c) { tile_machine::configure(c); }
    static void save(tile_config & c) { tile_machine::save(c); }

    template <int t> static void zero() { tile_machine::zero(t); }
    template <int t> static void load(const void * p, int64_t stride) { tile_machine::load(t, p, stride); }
    template <int t> static void store(void * p, int64_t stride) { tile_machine::store(t, p, stride); }
    template <int s, int i, int w> static void dot_codes() { tile_machine::dot_codes(s, i, w); }
    template <int s, int i, int w> static void dot_bf16() { tile_machine::dot_bf16(s, i, w); }
};

} // namespace
} // namespace duo::cpu
