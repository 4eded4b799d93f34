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

namespace duo {

namespace {

struct gguf_closer {
    void operator()(gguf_context * g) const { gguf_free(g); }
};
struct ggml_closer {
    void operator()(ggml_context * g) const { ggml_free(g); }
};

// Header integer of any width; `otherwise` if absent, -1 if it is no single integer.
int64_t integer(const gguf_context * g, const std::string & key, int64_t otherwise) {
    const int64_t i = gguf_find_key(g, key.c_str());
    if (i < 0) {
        return otherwise;
    }
    switch (gguf_get_kv_type(g, i)) {
        case GGUF_TYPE_UINT32:
            return gguf_get_val_u32(g, i);
        case GGUF_TYPE_INT32:
            return gguf_get_val_i32(g, i);
        case GGUF_TYPE_UINT64:
            return int64_t(gguf_get_val_u64(g, i));
        case GGUF_TYPE_INT64:
            return gguf_get_val_i64(g, i);
        case GGUF_TYPE_UINT16:
            return gguf_get_val_u16(g, i);
        case GGUF_TYPE_ARRAY:
            return otherwise;  // one value a layer, for some architectures
        default:
            return -1;
    }
}

void check_range(const std::string & path, const gguf_context * g, const std::string & key, int64_t lo, int64_t hi) {
    const int64_t x = integer(g, key, lo);
    if (x < lo || x > hi) {
        throw error(path + " is corrupt: " + key + " is " + std::to_string(x) + ", which is not between " +
                    std::to_string(lo) + " and " + std::to_string(hi) + "; download or convert it again");
    }
}

}  // namespace

void check_model_file(const std::string & path) {
    namespace fs = std::filesystem;
    if (path.find('\0') != std::string::npos) {
        throw error("a model path holds a NUL byte; check the path");
    }
    std::error_code ec;
    if (!fs::exists(path, ec)) {
        throw error("there is no file " + path + "; check the path");
    }
    if (fs::is_directory(path, ec)) {
        throw error(path + " is a directory; give the .gguf file in it");
    }
    const auto    n_bytes = uint64_t(fs::file_size(path, ec));
    std::ifstream file(path, std::ios::binary);
    if (ec || !file) {
        throw error(path + " cannot be read; check its permissions");
    }
    std::array<char, 4> magic{};
    file.read(magic.data(), magic.size());
    if (file.gcount() < 4 || std::memcmp(magic.data(), "GGUF", 4) != 0) {
        throw error(path + " is not a GGUF file (it does not begin with GGUF); convert the model with llama.cpp");
    }
    file.close();

    ggml_context *                                   tensors = nullptr;
    const std::unique_ptr<gguf_context, gguf_closer> g(
        gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = &tensors}));
    const std::unique_ptr<ggml_context, ggml_closer> owned(tensors);
    if (!g) {
        throw error(path + " has a truncated or corrupt header (" + std::to_string(n_bytes) +
                    " bytes); download it again");
    }

    uint64_t n_needed = gguf_get_data_offset(g.get());
    for (int64_t i = 0; i < gguf_get_n_tensors(g.get()); ++i) {
        const uint64_t end =
            gguf_get_data_offset(g.get()) + gguf_get_tensor_offset(g.get(), i) + gguf_get_tensor_size(g.get(), i);
        n_needed = end > n_needed ? end : n_needed;
    }
    if (n_bytes < n_needed) {
        throw error(path + " is truncated: it has " + std::to_string(n_bytes) + " bytes and its header needs " +
                    std::to_string(n_needed) + "; download it again");
    }

    const int64_t i_arch = gguf_find_key(g.get(), "general.architecture");
    if (i_arch < 0 || gguf_get_kv_type(g.get(), i_arch) != GGUF_TYPE_STRING) {
        throw error(path + " names no architecture (general.architecture), so it is not a language model; choose another file");
    }
    const std::string arch = gguf_get_val_str(g.get(), i_arch);
    // libllama asserts on some of these, divides by others.
    check_range(path, g.get(), arch + ".block_count", 1, 512);
    check_range(path, g.get(), arch + ".embedding_length", 1, 1 << 20);
    check_range(path, g.get(), arch + ".context_length", 1, INT32_MAX);
    check_range(path, g.get(), arch + ".feed_forward_length", 0, 1 << 24);
    check_range(path, g.get(), arch + ".attention.head_count", 0, 1 << 14);
    check_range(path, g.get(), arch + ".attention.head_count_kv", 0, 1 << 14);
    check_range(path, g.get(), arch + ".attention.key_length", 1, 1 << 14);
    check_range(path, g.get(), arch + ".attention.value_length", 1, 1 << 14);
    check_range(path, g.get(), arch + ".rope.dimension_count", 0, 1 << 14);
    check_range(path, g.get(), arch + ".expert_count", 0, 1 << 14);
    check_range(path, g.get(), "split.count", 0, 1 << 14);
}

}  // namespace duo
