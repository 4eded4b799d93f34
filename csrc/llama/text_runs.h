// How long a text's longest line of words is. libllama splits most texts by std::regex, which calls itself once
// for each character that a match has (src/unicode.cpp), so a long one needs a deep stack.
#pragma once

#include <functional>
#include <string_view>

namespace duo {

// Bytes in a row that are all spaces and line ends, or words with single spaces between them.
size_t longest_run(std::string_view text);

// Calls read, which tokenizes these texts, where its stack suffices for the longest run. Throws duo::error if a run is
// too long for any.
void with_stack_for(size_t longest_run, const std::function<void()> & read);

} // namespace duo
