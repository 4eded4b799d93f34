// Converts weights from the order of a GGUF file to that of format.h, and back.
#pragma once

#include <functional>

#include "format.h"

namespace duo::cpu {

// Packs the rows of one panel. rows: the file's bytes of row 16 * panel + i, or nullptr after the last row (zeros).
void pack_panel(const matrix_shape & shape, int64_t panel, const uint8_t * const rows[n_lanes], uint8_t * packed);

// Restores the file's bytes of one packed row.
void unpack_row(const matrix_shape & shape, const uint8_t * packed, int64_t row, uint8_t * out);

// Bytes of a row of this shape in the file's form.
size_t file_row(const matrix_shape & shape);

// Makes a row in the file's form of a row in another form. Several threads call it, each with its own k floats.
using convert_fn = std::function<void(const uint8_t * from, uint8_t * to, float * scratch)>;

// Packs whole matrices that follow each other, as the experts of a layer, with up to n_threads threads, which share the
// panels of all. The distance between rows is row_bytes. convert: if rows have another form.
void pack_matrices(const matrix_shape & shape, int64_t n_matrices, const uint8_t * rows, size_t row_bytes,
                   uint8_t * packed, int n_threads, const convert_fn & convert = {});

} // namespace duo::cpu
