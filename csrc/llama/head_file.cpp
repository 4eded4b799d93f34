#include "head_file.h"

#include <algorithm>
#include <variant>

#include "../error.h"
#include "file_header.h"

namespace duo {

namespace {

constexpr size_t n_layers_eagle3 = 3;

const header_value * find(const file_header & h, const std::string & key) {
    const auto it = std::find_if(h.values.begin(), h.values.end(), [&key](const auto & v) { return v.first == key; });
    return it == h.values.end() ? nullptr : &it->second;
}

int64_t number(const file_header & h, const std::string & key) {
    const header_value * v = find(h, key);
    const auto *         n = v == nullptr ? nullptr : std::get_if<int64_t>(v);
    return n == nullptr ? 0 : *n;
}

} // namespace

std::optional<head_file> read_head_file(const std::string & path) {
    const file_header    h    = read_file_header(path);
    const header_value * name = find(h, "general.architecture");
    const auto *         arch = name == nullptr ? nullptr : std::get_if<std::string>(name);
    if (arch == nullptr || *arch != "eagle3") {
        return std::nullopt;
    }
    head_file out;
    if (const header_value * v = find(h, "eagle3.target_layers"); v != nullptr) {
        if (const auto * layers = std::get_if<std::vector<int64_t>>(v)) {
            out.layers.assign(layers->begin(), layers->end());
        }
    }
    out.n_target             = number(h, "eagle3.target_hidden_size");
    out.n_embd               = number(h, "eagle3.embedding_length");
    constexpr int64_t n_most = 1 << 20;
    if (out.layers.size() != n_layers_eagle3 || out.n_target < 1 || out.n_target > n_most ||
        number(h, "eagle3.block_count") != 1) {
        throw error(error_kind::bad_value,
                    path +
                        " is no EAGLE-3 head that llama.cpp can run: it must have one layer, read three layers of its "
                        "target (eagle3.target_layers) and say how wide they are (eagle3.target_hidden_size)");
    }
    const auto has = [&h](const char * tensor) {
        return std::any_of(h.tensors.begin(), h.tensors.end(),
                           [tensor](const header_tensor & t) { return t.name == tensor; });
    };
    out.own_embedding = has("token_embd.weight");
    out.own_output    = has("output.weight");
    return out;
}

} // namespace duo
