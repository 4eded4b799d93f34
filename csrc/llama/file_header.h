// The contents of the headers of a GGUF model, for all parts of a split model together. No weight is read.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace duo {

// monostate: an array of strings, or an array too long to be a property of the model (the vocabulary).
using header_value = std::variant<std::monostate, int64_t, double, bool, std::string, std::vector<int64_t>>;

struct header_tensor {
    std::string          name;
    std::string          type; // ggml's name
    uint64_t             n_bytes = 0;
    std::vector<int64_t> shape;      // columns first
    size_t               part   = 0; // index in file_header::parts
    uint64_t             offset = 0; // bytes, from the beginning of that file
};

struct file_header {
    std::vector<std::string>                          parts; // paths, in order; one for a model that is not split
    uint64_t                                          n_file_bytes = 0;
    std::vector<std::pair<std::string, header_value>> values; // of the first part
    std::vector<header_tensor>                        tensors;

    // nullptr: there is none, or a value of another type.
    [[nodiscard]] const header_tensor *           tensor(const std::string & name) const;
    [[nodiscard]] const header_value *            value(const std::string & key) const;
    template <typename T> [[nodiscard]] const T * value_as(const std::string & key) const {
        const header_value * v = value(key);
        return v == nullptr ? nullptr : std::get_if<T>(v);
    }
};

// Throws duo::error as check_model_file does, for a missing part, and for a path that is not the first part.
file_header read_file_header(const std::string & path);

} // namespace duo
