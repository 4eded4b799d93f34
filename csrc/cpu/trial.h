// Tests whether the instructions that the processor announces work. A child process, which may crash, tries stock
// ggml's products in plain memory and in each extra buffer type, and those of duo's kernels.
#pragma once

#include <string>
#include <vector>

namespace duo::cpu {

// Tries, in this order: "plain", the extra buffer types ("AMX", "CPU_REPACK"), "duo avx512". Prints "begins<TAB>NAME"
// before each kind and the result after it ("works", "wrong"; "absent": duo's kernels do not support this libggml). The
// last line is "done". Skips the kinds in `skip`.
void try_products(const std::vector<std::string> & skip);

} // namespace duo::cpu
