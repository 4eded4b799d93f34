#include "requantise.h"

#include <cstring>

#include "ggml_buffer.h"
#include "quantise.h"

namespace duo::cpu {

namespace {

bool can_read(ggml_type t) {
    return t == GGML_TYPE_F32 || ggml_get_type_traits(t)->to_float != nullptr;
}

// Types below 4 bits need an importance matrix, which no file has.
bool can_write(ggml_type t) {
    return ggml_quantize_requires_imatrix(t) == false &&
           (t == GGML_TYPE_F32 || ggml_get_type_traits(t)->from_float_ref != nullptr);
}

} // namespace

void to_floats(ggml_type type, const uint8_t * row, int64_t n, float * out) {
    if (type == GGML_TYPE_F32) { // ggml has no function for it
        std::memcpy(out, row, size_t(n) * sizeof(float));
    } else {
        ggml_get_type_traits(type)->to_float(row, out, n);
    }
}

convert_fn conversion(ggml_type from, ggml_type to, int64_t n_columns) {
    if (from == to || !can_read(from) || !can_write(to) || n_columns % ggml_blck_size(from) != 0 ||
        n_columns % ggml_blck_size(to) != 0) {
        return {};
    }
    const auto shape = shape_of(to, n_columns, 1);
    const bool ours  = shape && can_quantise(shape->f);
    return [from, to, n_columns, ours, f = ours ? shape->f : format::q4_0](const uint8_t * row, uint8_t * out,
                                                                           float * scratch) {
        to_floats(from, row, n_columns, scratch);
        if (ours) {
            return quantise_row(f, scratch, n_columns, out);
        }
        ggml_quantize_chunk(to, scratch, out, 0, 1, n_columns, nullptr);
    };
}

} // namespace duo::cpu
