// Whether this process may use Intel AMX; and what an emulation of it does where a processor faults.
#pragma once

namespace duo::cpu {

// The processor has AMX-TILE, AMX-INT8 and AMX-BF16, the system saves the registers, and it allows this process to use
// them (Linux is asked for that, once).
bool may_use_amx();

// Emulated tiles were used in a way that a processor refuses. Throws std::logic_error. Not in the header that calls it:
// code of the standard library must not be compiled for an instruction set that not every machine has.
[[noreturn]] void tile_fault(const char * what);

} // namespace duo::cpu
