// Refuses grammars that would overflow the stack of llama.cpp's grammar parser, which is recursive.
#pragma once

#include <string>

namespace duo {

// Why `gbnf` must not be parsed; empty: it may be.
std::string grammar_too_large(const std::string & gbnf);

} // namespace duo
