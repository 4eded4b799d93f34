#include "control_vector.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "gguf_handle.h"
#include "log.h"

namespace duo {

namespace {

[[noreturn]] void refuse_vector(const std::string & path, const std::string & why) {
    throw error(error_kind::bad_value, "the control vector " + path + " " + why);
}

// direction.7 -> 7; 0: another name.
int32_t direction_layer(const std::string & name) {
    constexpr std::string_view prefix = "direction.";
    int32_t                    layer  = 0;
    const char * const         end    = name.data() + name.size();
    if (!name.starts_with(prefix) || std::from_chars(name.data() + prefix.size(), end, layer).ptr != end) {
        return 0;
    }
    return layer;
}

// Adds the directions of one file to `sum`: n_embd numbers for each layer from 1 on.
void add_file(const std::string & path, float scale, size_t n_embd, size_t n_layer, std::vector<float> & sum) {
    const gguf_handle g(path);
    if (!g) {
        refuse_vector(path, "is not a GGUF file, or is damaged; check the file");
    }
    const int64_t i_kind = gguf_find_key(g.get(), "general.architecture");
    if (i_kind >= 0 && gguf_get_kv_type(g.get(), i_kind) == GGUF_TYPE_STRING &&
        std::strcmp(gguf_get_val_str(g.get(), i_kind), "controlvector") != 0) {
        refuse_vector(path, std::string("is a file of another kind (") + gguf_get_val_str(g.get(), i_kind) +
                                "); give one whose architecture is controlvector");
    }
    if (gguf_get_n_tensors(g.get()) == 0) {
        refuse_vector(path, "contains no directions; create it again");
    }
    std::error_code    ec;
    const uint64_t     n_bytes = std::filesystem::file_size(path, ec);
    std::ifstream      file(path, std::ios::binary);
    std::vector<float> direction(n_embd);
    for (int64_t i = 0; i < gguf_get_n_tensors(g.get()); ++i) {
        const std::string name  = gguf_get_tensor_name(g.get(), i);
        const int32_t     layer = direction_layer(name);
        if (layer < 1) {
            refuse_vector(path, "contains a tensor " + name + "; directions are called direction.1, direction.2, ...");
        }
        if (gguf_get_tensor_type(g.get(), i) != GGML_TYPE_F32) {
            refuse_vector(path, "does not contain 32-bit floats; convert it");
        }
        if (const size_t n = gguf_get_tensor_size(g.get(), i) / sizeof(float); n != n_embd) {
            refuse_vector(path, "has directions of " + std::to_string(n) +
                                    " numbers, and the model's embeddings have " + std::to_string(n_embd) +
                                    "; give one that was made for this model");
        }
        if (size_t(layer) >= n_layer) {
            refuse_vector(path, "has a direction for layer " + std::to_string(layer) +
                                    ", and the last layer of the model is " + std::to_string(n_layer - 1) +
                                    "; give one that was made for this model");
        }
        const uint64_t begin = gguf_get_data_offset(g.get()) + gguf_get_tensor_offset(g.get(), i);
        if (ec || begin > n_bytes || n_bytes - begin < n_embd * sizeof(float) ||
            !file.seekg(std::streamoff(begin))
                 .read(reinterpret_cast<char *>(direction.data()), std::streamsize(n_embd * sizeof(float)))) {
            refuse_vector(path, "is truncated; download it again");
        }
        for (size_t j = 0; j < n_embd; ++j) {
            if (!std::isfinite(direction[j])) {
                refuse_vector(path, "contains a number that is not finite; download it again");
            }
            sum[size_t(layer - 1) * n_embd + j] += direction[j] * scale;
        }
    }
}

} // namespace

void use_control_vectors(llama_context * context, const llama_model * model, const model_options & opt) {
    if (opt.control_vectors.empty()) {
        return;
    }
    const auto n_embd  = size_t(llama_model_n_embd(model));
    const auto n_layer = size_t(llama_model_n_layer(model));
    if (int32_t(n_layer) <= opt.control_first) {
        throw error(error_kind::bad_value, "the control vectors begin at layer " + std::to_string(opt.control_first) +
                                               ", and the last layer of " + opt.path + " is " +
                                               std::to_string(n_layer - 1) + "; lower --control-vector-layer-range");
    }
    std::vector<float> sum(n_embd * n_layer);
    for (const auto & [path, scale] : opt.control_vectors) {
        add_file(path, scale, n_embd, n_layer, sum);
    }
    const int32_t first = opt.control_first > 0 ? opt.control_first : 1;
    const int32_t last  = opt.control_last > 0 ? opt.control_last : int32_t(n_layer);
    log_clear_errors();
    if (llama_set_adapter_cvec(context, sum.data(), sum.size(), int32_t(n_embd), first, last) != 0) {
        throw error(error_kind::bad_value, "the control vectors could not be used with " + opt.path + log_reason());
    }
}

} // namespace duo
