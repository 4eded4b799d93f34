#include "model_file.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include <ggml.h>
#include <gguf.h>

#include "../error.h"
#include "model_header.h"

namespace duo {

namespace {

struct gguf_closer {
    void operator()(gguf_context * g) const { gguf_free(g); }
};
struct ggml_closer {
    void operator()(ggml_context * g) const { ggml_free(g); }
};

} // namespace

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

    ggml_context *                                   tensors = nullptr;
    const std::unique_ptr<gguf_context, gguf_closer> g(
        gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = &tensors}));
    const std::unique_ptr<ggml_context, ggml_closer> owned(tensors);
    if (!g) {
        throw error(error_kind::bad_value, path + " has a truncated or corrupt header (" + std::to_string(n_bytes) +
                                               " bytes); download it again");
    }

    uint64_t n_needed = gguf_get_data_offset(g.get());
    for (int64_t i = 0; i < gguf_get_n_tensors(g.get()); ++i) {
        const uint64_t begin = gguf_get_data_offset(g.get()) + gguf_get_tensor_offset(g.get(), i);
        if (begin % 32 != 0) { // ggml asserts this for mapped memory
            throw error(error_kind::bad_value, path + " aligns its weights to less than 32 bytes; convert it again");
        }
        const uint64_t end = begin + gguf_get_tensor_size(g.get(), i);
        n_needed           = end > n_needed ? end : n_needed;
    }
    if (n_bytes < n_needed) {
        throw error(error_kind::bad_value, path + " is truncated: it has " + std::to_string(n_bytes) +
                                               " bytes and its header needs " + std::to_string(n_needed) +
                                               "; download it again");
    }

    check_model_header(path, g.get());
}

bool uses_tiled_products(const std::string & path) {
    std::error_code ec;
    if (!std::filesystem::is_regular_file(path, ec)) {
        return false;
    }
    const std::unique_ptr<gguf_context, gguf_closer> g(
        gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr}));
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
