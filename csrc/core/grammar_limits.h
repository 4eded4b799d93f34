// Grammars that llama.cpp's reader, which is recursive, would run out of stack on: kept away from it.
#pragma once

#include <string>

namespace duo {

// Why `gbnf` is not to be read; empty: it may be.
std::string grammar_too_large(const std::string & gbnf);

} // namespace duo
