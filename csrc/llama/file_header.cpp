#include "file_header.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include <llama.h>

#include "base/error.h"
#include "gguf_handle.h"
#include "model_file.h"

namespace duo {

namespace {

constexpr size_t n_array_most = 1024; // enough for one value per layer; a vocabulary is longer

template <typename Int> std::vector<int64_t> widened(const gguf_context * g, int64_t i) {
    const auto * data = static_cast<const Int *>(gguf_get_arr_data(g, i));
    return {data, data + gguf_get_arr_n(g, i)};
}

header_value array(const gguf_context * g, int64_t i) {
    if (gguf_get_arr_n(g, i) > n_array_most) {
        return {};
    }
    switch (gguf_get_arr_type(g, i)) {
        case GGUF_TYPE_UINT32:
            return widened<uint32_t>(g, i);
        case GGUF_TYPE_INT32:
            return widened<int32_t>(g, i);
        case GGUF_TYPE_BOOL:
            return widened<int8_t>(g, i);
        default:
            return {};
    }
}

header_value value(const gguf_context * g, int64_t i) {
    switch (gguf_get_kv_type(g, i)) {
        case GGUF_TYPE_UINT8:
            return int64_t(gguf_get_val_u8(g, i));
        case GGUF_TYPE_INT8:
            return int64_t(gguf_get_val_i8(g, i));
        case GGUF_TYPE_UINT16:
            return int64_t(gguf_get_val_u16(g, i));
        case GGUF_TYPE_INT16:
            return int64_t(gguf_get_val_i16(g, i));
        case GGUF_TYPE_UINT32:
            return int64_t(gguf_get_val_u32(g, i));
        case GGUF_TYPE_INT32:
            return int64_t(gguf_get_val_i32(g, i));
        case GGUF_TYPE_UINT64:
            return int64_t(gguf_get_val_u64(g, i));
        case GGUF_TYPE_INT64:
            return gguf_get_val_i64(g, i);
        case GGUF_TYPE_FLOAT32:
            return double(gguf_get_val_f32(g, i));
        case GGUF_TYPE_FLOAT64:
            return gguf_get_val_f64(g, i);
        case GGUF_TYPE_BOOL:
            return gguf_get_val_bool(g, i);
        case GGUF_TYPE_STRING:
            return std::string(gguf_get_val_str(g, i));
        case GGUF_TYPE_ARRAY:
            return array(g, i);
        default:
            return {};
    }
}

int64_t integer(const gguf_context * g, const char * key, int64_t otherwise) {
    const int64_t      i = gguf_find_key(g, key);
    const header_value v = i < 0 ? header_value{} : value(g, i);
    const auto * const x = std::get_if<int64_t>(&v);
    return x == nullptr ? otherwise : *x;
}

// Adds the tensors of one file. Returns the number of parts that its header declares.
int read_part(const std::string & path, int i_part, file_header & out) {
    const gguf_handle g(path);
    if (!g) {
        throw error(error_kind::bad_value, path + " has a truncated or corrupt header; download it again");
    }
    const auto n_parts = int(integer(g.get(), "split.count", 1));
    if (const int64_t no = integer(g.get(), "split.no", 0); no != i_part) {
        throw error(error_kind::unknown_model, path + " is part " + std::to_string(no + 1) + " of " +
                                                   std::to_string(n_parts) + " of a model" +
                                                   ", which contradicts its name; download it again");
    }
    for (int64_t i = 0; i_part == 0 && i < gguf_get_n_kv(g.get()); ++i) {
        out.values.emplace_back(gguf_get_key(g.get(), i), value(g.get(), i));
    }
    out.n_file_bytes += check_size(path, g);
    for (ggml_tensor * t = ggml_get_first_tensor(g.tensors()); t != nullptr; t = ggml_get_next_tensor(g.tensors(), t)) {
        const int64_t id     = gguf_find_tensor(g.get(), ggml_get_name(t));
        const size_t  offset = gguf_get_data_offset(g.get()) + gguf_get_tensor_offset(g.get(), id);
        out.tensors.push_back({ggml_get_name(t), ggml_type_name(t->type), ggml_nbytes(t),
                               std::vector<int64_t>(t->ne, t->ne + ggml_n_dims(t)), out.parts.size(), offset});
    }
    out.parts.push_back(path);
    return n_parts;
}

} // namespace

file_header read_file_header(const std::string & path) {
    check_model_file(path);
    file_header out;
    const int   n_parts = read_part(path, 0, out);
    if (n_parts <= 1) {
        return out;
    }
    std::array<char, 4096> prefix{};
    if (llama_split_prefix(prefix.data(), prefix.size(), path.c_str(), 0, n_parts) <= 0) {
        throw error(error_kind::unknown_model,
                    path + " is the first of " + std::to_string(n_parts) +
                        " parts, but its name is not NAME-00001-of-0000N.gguf; restore that name");
    }
    for (int i = 1; i < n_parts; ++i) {
        std::array<char, 4200> part{};
        llama_split_path(part.data(), part.size(), prefix.data(), i, n_parts);
        std::error_code ec;
        if (!std::filesystem::exists(part.data(), ec)) {
            throw error(error_kind::unknown_model, "part " + std::to_string(i + 1) + " of " + std::to_string(n_parts) +
                                                       " is missing: there is no file " + part.data() +
                                                       "; download it into the same folder");
        }
        read_part(part.data(), i, out);
    }
    return out;
}

const header_tensor * file_header::tensor(const std::string & name) const {
    const auto it =
        std::find_if(tensors.begin(), tensors.end(), [&name](const header_tensor & t) { return t.name == name; });
    return it == tensors.end() ? nullptr : &*it;
}

const header_value * file_header::value(const std::string & key) const {
    const auto it = std::find_if(values.begin(), values.end(), [&key](const auto & v) { return v.first == key; });
    return it == values.end() ? nullptr : &it->second;
}

} // namespace duo
