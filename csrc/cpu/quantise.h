// Floats to 4 bits, for weights of a draft. ggml's functions for this either try one scale (Q4_0) or take minutes for a
// model (IQ4_NL).
#pragma once

#include "format.h"

namespace duo::cpu {

constexpr bool can_quantise(format f) {
    return f == format::q4_0 || f == format::iq4_nl;
}

// Writes n floats (a multiple of 32) as blocks in the file's form. A block's scale is the one of a few that loses least
// in squares, as in ggml-quants.c (quantize_row_iq4_nl_impl). A block with a number that is not finite becomes NaN.
void quantise_row(format f, const float * x, int64_t n, uint8_t * file);

} // namespace duo::cpu
