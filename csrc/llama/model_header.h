// Checks the header values of a GGUF file before libllama uses them: it asserts on some and divides by others.
#pragma once

#include <string>

#include <gguf.h>

namespace duo {

// Throws duo::error for impossible header values, and for values on which libllama would abort.
void check_model_header(const std::string & path, const gguf_context * g);

} // namespace duo
