// AVX-512 with VNNI. Compiled a second time with DUO_KERNEL_AVX512_BF16 for machines that can also multiply pairs of
// bf16.
#include "vector_avx512.h"

namespace duo::cpu {
namespace {

using vec = direct<raw>;

} // namespace

#if defined(DUO_KERNEL_AVX512_BF16)
const kernel_set kernels_avx512_bf16 = make_kernels<vec>("avx512_bf16");
#else
const kernel_set kernels_avx512 = make_kernels<vec>("avx512");
#endif

} // namespace duo::cpu
