// Whether this process may use Intel AMX, and the fault of emulated tiles.
#pragma once

namespace duo::cpu {

// Whether the processor has AMX-TILE, AMX-INT8 and AMX-BF16, and the system saves the registers and allows this process
// to use them (on Linux it is asked once).
bool may_use_amx();

// Throws std::logic_error: emulated tiles were used in a way that a processor refuses. This is not inline, because
// standard library code must not be compiled for an instruction set that some machines lack.
[[noreturn]] void tile_fault(const char * what);

} // namespace duo::cpu
