#include "model_file.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "base/error.h"
#include "cpu/shortage.h"
#include "model_header.h"
#include "unpacked_file.h"

namespace duo {

namespace {

// Whether libggml has a kernel for such a weight. It calls one in any case, which ends the process.
bool has_kernel(ggml_type type, std::string_view name, const ggml_tensor * shape) {
    switch (type) {
        case GGML_TYPE_F32:
        case GGML_TYPE_F16:
        case GGML_TYPE_BF16:
            return true;
        case GGML_TYPE_Q8_1: // these two hold activations
        case GGML_TYPE_Q8_K:
            return false;
        case GGML_TYPE_I32: // ids of tokens and of experts
        case GGML_TYPE_I64:
            return name.ends_with("d2t") || name.ends_with("tid2eid.weight");
        default:
            return ggml_is_quantized(type) && ggml_n_dims(shape) > 1; // norms and biases are never quantised
    }
}

void check_weight_type(const std::string & path, const gguf_handle & g, int64_t i) {
    const char * const name = gguf_get_tensor_name(g.get(), i);
    const ggml_type    type = gguf_get_tensor_type(g.get(), i);
    if (!has_kernel(type, name, ggml_get_tensor(g.tensors(), name))) {
        throw error(error_kind::bad_value, path + " is corrupt: its tensor " + name + " has the type " +
                                               ggml_type_name(type) +
                                               ", which no such weight has; download or convert it again");
    }
}

} // namespace

uint64_t check_size(const std::string & path, const gguf_handle & header) {
    const gguf_context * const g = header.get();
    std::error_code            ec;
    const uint64_t n_bytes  = header.n_unpacked() != 0 ? header.n_unpacked() : std::filesystem::file_size(path, ec);
    uint64_t       n_needed = gguf_get_data_offset(g);
    for (int64_t i = 0; i < gguf_get_n_tensors(g); ++i) {
        n_needed =
            std::max(n_needed, gguf_get_data_offset(g) + gguf_get_tensor_offset(g, i) + gguf_get_tensor_size(g, i));
    }
    if (ec) {
        throw error(error_kind::unknown_model, path + " cannot be read; check its permissions");
    }
    if (n_bytes < n_needed) {
        throw error(error_kind::bad_value, path + " is truncated: it has " + std::to_string(n_bytes) +
                                               " bytes and its header needs " + std::to_string(n_needed) +
                                               "; download it again");
    }
    return n_bytes;
}

void check_model_file(const std::string & path) {
    namespace fs = std::filesystem;
    if (path.find('\0') != std::string::npos) {
        throw error(error_kind::unknown_model, "a model path holds a NUL byte; check the path");
    }
    std::error_code ec;
    if (!fs::exists(path, ec)) {
        throw error(error_kind::unknown_model, ec ? path + " cannot be read (" + ec.message() + "); check the path"
                                                  : "there is no file " + path + "; check the path");
    }
    if (fs::is_directory(path, ec)) {
        throw error(error_kind::unknown_model, path + " is a directory; give the .gguf file in it");
    }
    if (!fs::is_regular_file(path, ec)) {
        throw error(error_kind::unknown_model,
                    path + " is not a regular file; give a .gguf file"); // opening a pipe would block
    }
    const auto    n_bytes = uint64_t(fs::file_size(path, ec));
    std::ifstream file(path, std::ios::binary);
    if (ec || !file) {
        throw error(error_kind::unknown_model, path + " cannot be read; check its permissions");
    }
    std::array<char, 4> magic{};
    file.read(magic.data(), magic.size());
    if (file.gcount() < 4 || std::memcmp(magic.data(), "GGUF", 4) != 0) {
        throw error(error_kind::unknown_model,
                    path + " is not a GGUF file (it does not begin with GGUF); convert the model with llama.cpp");
    }
    file.close();

    const cpu::shortage_watch shortage;
    const gguf_handle         g(path);
    if (g && g.is_checked()) {
        return;
    }
    open_unpacked(path); // says what is wrong with it
    if (!g && shortage.seen()) {
        throw error(error_kind::does_not_fit, "there is not enough memory to read " + path + "; free memory");
    }
    if (!g) {
        throw error(error_kind::bad_value, path + " has a truncated or corrupt header (" + std::to_string(n_bytes) +
                                               " bytes); download it again");
    }

    for (int64_t i = 0; i < gguf_get_n_tensors(g.get()); ++i) {
        const uint64_t begin = gguf_get_data_offset(g.get()) + gguf_get_tensor_offset(g.get(), i);
        if (begin % 32 != 0) { // ggml asserts this for mapped memory
            throw error(error_kind::bad_value, path + " aligns its weights to less than 32 bytes; convert it again");
        }
        check_weight_type(path, g, i);
    }
    check_size(path, g);
    check_model_header(path, g.get());
    g.note_checked();
}

bool uses_tiled_products(const std::string & path) {
    std::error_code ec;
    if (!std::filesystem::is_regular_file(path, ec)) {
        return false;
    }
    const gguf_handle g(path);
    for (int64_t i = 0; g && i < gguf_get_n_tensors(g.get()); ++i) {
        const ggml_type type = gguf_get_tensor_type(g.get(), i);
        // Types with one scale per block and unquantised types have no tiled products.
        if (ggml_is_quantized(type) && ggml_blck_size(type) > 32) {
            return true;
        }
    }
    return false;
}

} // namespace duo
