// What libllama takes for granted of the file of an EAGLE-3 or DFlash head. It ends the process where that does not
// hold.
#pragma once

#include <cstdint>
#include <string>

namespace duo {

// Why the head at `path` cannot be run, in one sentence; empty: it can, or the file is no such head. n_vocab: tokens
// of its vocabulary. Reads the list of the tokens that it proposes (d2t). Throws duo::error as read_file_header does.
std::string head_fault(const std::string & path, int64_t n_vocab);

} // namespace duo
