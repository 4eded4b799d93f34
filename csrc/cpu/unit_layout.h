// Where the numbers of a row lie in a packed unit of 16 rows.
#pragma once

#include "file_block.h"

namespace duo::cpu {

// A unit has one scale of 16 rows, and 32 bytes of nothing behind it: what follows keeps whole cache lines.
constexpr bool has_gap(format f) {
    return f == format::q3_k || f == format::q6_k || f == format::iq4_xs || f == format::tq1_0 || f == format::tq2_0 ||
           has_codebook(f);
}

// For the integer formats only. lane: the row's index in the panel.
void put_unit(format f, const unit_row & u, uint8_t * unit, int lane);
void get_unit(format f, unit_row & u, const uint8_t * unit, int lane);

// The same for points of a codebook.
void put_unit_iq(format f, const unit_row & u, uint8_t * unit, int lane);
void get_unit_iq(format f, unit_row & u, const uint8_t * unit, int lane);

} // namespace duo::cpu
