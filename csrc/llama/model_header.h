// Checks the header values of a GGUF file before libllama uses them: it asserts on some and divides by others.
#pragma once

#include <string>

#include <gguf.h>

namespace duo {

// Throws duo::error for impossible header values, and for values on which libllama would abort.
void check_model_header(const std::string & path, const gguf_context * g);

// What kind of model a file holds (general.architecture); empty: it is no GGUF file, or names none.
std::string architecture_of(const std::string & path);

} // namespace duo
