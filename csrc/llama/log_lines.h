// The error lines that libllama has logged in the calling thread. Each thread has its own, because both workers
// evaluate at the same time, and a failure must not be explained by the other one's lines, nor lose its own.
#pragma once

#include <string>

namespace duo {

enum class log_kind { other, error, continued }; // continued: as the line before it

// Needs no memory, so libllama's callback may call it anywhere, also while a thread or the process ends.
void keep_log_line(log_kind kind, const char * line) noexcept;

void clear_log_lines() noexcept;

// The first error lines, joined, without line ends; empty: none.
std::string joined_log_lines();

} // namespace duo
