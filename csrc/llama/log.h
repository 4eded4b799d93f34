// libllama's log lines: kept for error messages, and passed on if the user wants them.
#pragma once

#include <string>

#include <ggml.h>

#include "log_style.h"

namespace duo {

// Installs the log callback for the whole process.
void log_install();

// The callback that log_install() installs, for other libraries of llama.cpp.
ggml_log_callback log_callback();

// Sets where lines go from now on. `path` empty: no file. Throws duo::error if the file cannot be opened.
void log_to(bool to_stderr, const std::string & path);

// How lines look there from now on.
void set_log_style(const log_style & style);

// Forgets the thread's error lines so far (log_lines.h). Call it before an operation whose failure should be explained.
void log_clear_errors();

// The thread's first error lines since then as the end of a sentence: " (...)", or empty.
std::string log_reason();

} // namespace duo
