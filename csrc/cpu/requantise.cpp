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

convert_fn conversion(ggml_type from, ggml_type to, int64_t n_columns) {
    if (from == to || !can_read(from) || !can_write(to) || n_columns % ggml_blck_size(from) != 0 ||
        n_columns % ggml_blck_size(to) != 0) {
        return {};
    }
    const auto to_float = from == GGML_TYPE_F32 ? nullptr : ggml_get_type_traits(from)->to_float;
    const auto shape    = shape_of(to, n_columns, 1);
    const bool ours     = shape && can_quantise(shape->f);
    return [to_float, to, n_columns, ours, f = ours ? shape->f : format::q4_0](const uint8_t * row, uint8_t * out,
                                                                               float * scratch) {
        if (to_float == nullptr) {
            std::memcpy(scratch, row, size_t(n_columns) * sizeof(float));
        } else {
            to_float(row, scratch, n_columns);
        }
        if (ours) {
            return quantise_row(f, scratch, n_columns, out);
        }
        ggml_quantize_chunk(to, scratch, out, 0, 1, n_columns, nullptr);
    };
}

} // namespace duo::cpu
