// Configurations of tile registers for tests.
#pragma once

#include <initializer_list>
#include <utility>

#include "cpu/kernel.h"

namespace {

// Rows and bytes of tiles 0, 1, ...
inline duo::cpu::tile_config config_of(std::initializer_list<std::pair<int, int>> shapes) {
    duo::cpu::tile_config c{};
    c.palette = 1;
    int i     = 0;
    for (const auto & [rows, n] : shapes) {
        c.rows[i]      = uint8_t(rows);
        c.n_bytes[i++] = uint16_t(n);
    }
    return c;
}

} // namespace
