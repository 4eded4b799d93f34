// Whether this draft can guess for this target: their token ids must mean the same text.
#pragma once

#include <string>

#include <llama.h>

namespace duo {

// Empty: yes. Otherwise one sentence with the first difference, for both sides. The rule is llama.cpp's
// (common/speculative.cpp, common_speculative_are_compatible): sizes within 128 of each other (padding differs), same
// text from id 5 on, same type and same BOS/EOS.
std::string pair_mismatch(const llama_vocab * target, const llama_vocab * draft);

} // namespace duo
