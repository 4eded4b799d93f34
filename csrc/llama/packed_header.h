// The header of a packed file: see packed_file.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file_map.h"
#include "packed_file.h"

namespace duo {

// Bytes that a sum is made of. The last piece of a matrix may be smaller.
constexpr uint64_t n_piece = uint64_t(4) << 20;

struct summed_piece {
    uint64_t offset, n_bytes; // in the file
};

struct packed_header {
    std::string                source; // what it says of its model: see pack_model
    std::vector<packed_tensor> tensors;
    packed_rest                rest;
    std::vector<uint64_t>      sums;  // of all pieces
    std::string                fault; // why it cannot be used ("are damaged"); empty: it can
};

// In the order of their sums: by tensors, matrices, and within them; then those of the rest.
std::vector<summed_piece> pieces_of(const packed_header & header);

// Bytes of the tensor in the model's file.
uint64_t source_bytes(const packed_tensor & tensor);

// Whether duo pack has written it, by its first key.
bool is_packed_file(const std::string & path);

// Throws std::exception if libggml finds no sense in it, or no memory.
packed_header read_packed_header(const std::string & path, const file_map & file);

// The bytes before the first tensor. It sets the offsets of the tensors and of the rest.
std::vector<uint8_t> packed_header_bytes(packed_header & header);

} // namespace duo
