// The tensors of a draft head's file, compared with what its header says of them.
#pragma once

#include <string>

#include "file_header.h"

namespace duo {

// Why libllama would refuse the file, or end the process, in the rest of a sentence that begins with the file's name:
// the first value that is missing or impossible, or the first tensor that is missing, of another shape, or too much.
// Empty: nothing is wrong, or the file is no EAGLE-3 or DFlash head and has no MTP layers.
std::string head_shape_fault(const file_header & h);

} // namespace duo
