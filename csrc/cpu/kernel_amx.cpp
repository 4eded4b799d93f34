// AVX-512 and the tile registers of Intel AMX. Compiled twice: with DUO_KERNEL_AMX for the real registers, without it
// for those of tile_emulated.h.
#include "panel_tiles.h"
#include "vector_avx512.h"

#if !defined(DUO_KERNEL_AMX)
#include "tile_emulated.h"
#endif

namespace duo::cpu {

#if defined(DUO_KERNEL_AMX)
constinit const wide_kernels wide_amx = make_wide<raw, tile_registers>();
#else
constinit const wide_kernels wide_amx_emulated = make_wide<raw, emulated_tiles>();
#endif

} // namespace duo::cpu
