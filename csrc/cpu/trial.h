// Does every instruction do here what the processor announces? Products are tried in a child process, which may die of
// them: stock ggml's in plain memory and in each extra buffer type, and those of duo's kernels.
#pragma once

#include <string>
#include <vector>

namespace duo::cpu {

// What is tried, in this order: "plain", the extra buffer types ("AMX", "CPU_REPACK"), "duo avx512". Each kind is
// announced on standard output before it is computed ("begins<TAB>NAME") and judged after ("works", "wrong"; "absent":
// this libggml cannot have duo's kernels). At the end comes "done". Kinds in `skip` are left out.
void try_products(const std::vector<std::string> & skip);

} // namespace duo::cpu
