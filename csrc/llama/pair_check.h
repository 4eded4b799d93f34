// Whether token ids of a target and of a draft mean the same text.
#pragma once

#include <string>

#include <llama.h>

namespace duo {

// Empty: they do. Otherwise the first difference, for both sides. The rule is llama.cpp's (common/speculative.cpp,
// common_speculative_are_compatible): sizes within 128 of each other (padding differs), same text from id 5 on, same
// type and same BOS/EOS.
std::string vocabulary_difference(const llama_vocab * target, const llama_vocab * draft);

// A sentence: a draft with such a vocabulary is of no use.
std::string misfit(const std::string & difference);

} // namespace duo
