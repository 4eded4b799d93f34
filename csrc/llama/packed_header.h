// The header of a packed file: see packed_file.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file_map.h"
#include "packed_file.h"

namespace duo {

constexpr uint64_t packed_piece = uint64_t(4)
                                  << 20; // bytes that a sum is made of; a tensor's last piece may be smaller

struct packed_header {
    std::string                source; // source_mark of the model
    std::vector<packed_tensor> tensors;
    std::vector<uint64_t>      sums;  // of the pieces, tensor by tensor
    std::string                fault; // why it cannot be used ("are damaged"); empty: it can
};

// Throws std::bad_alloc only.
packed_header read_packed_header(const std::string & path, const file_map & file);

// The bytes before the first tensor. It sets the offsets of the tensors.
std::vector<uint8_t> packed_header_bytes(packed_header & header);

} // namespace duo
