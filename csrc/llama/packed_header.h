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
    packed_origin              origin;
    std::vector<packed_tensor> tensors;
    packed_rest                rest;
    std::vector<uint64_t>      sums;                     // of all pieces
    std::string                fault;                    // why it cannot be used ("are damaged"); empty: it can
    bool                       is_other_version = false; // that is the fault
};

// In the order of their sums: by tensors, matrices, and within them; then those of the rest.
std::vector<summed_piece> pieces_of(const packed_header & header);

// Bytes of the tensor in the model's file.
uint64_t source_bytes(const packed_tensor & tensor);

// Whether duo pack has written it, by its first key.
bool is_packed_file(const std::string & path);

// Whether it may have all of its model. Also true of a file that cannot be read to its end, if in doubt. Throws
// duo::error: it cannot be opened or mapped.
bool may_be_whole(const std::string & path);

// Continues the sum of a file's bytes with the next n. All but the last n must be n_sum_step.
constexpr size_t n_sum_step = size_t(16) << 20;
uint64_t         add_to_sum(uint64_t sum, const uint8_t * bytes, size_t n);

// Throws std::exception if libggml finds no sense in it, or no memory.
packed_header read_packed_header(const std::string & path, const file_map & file);

// The bytes before the first tensor. It sets the offsets of the tensors and of the rest.
std::vector<uint8_t> packed_header_bytes(packed_header & header);

} // namespace duo
