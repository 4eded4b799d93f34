#include "head_file.h"

#include <algorithm>
#include <variant>

#include "../error.h"
#include "file_header.h"
#include "hidden.h"

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

std::string text(const file_header & h, const std::string & key) {
    const header_value * v = find(h, key);
    const auto *         s = v == nullptr ? nullptr : std::get_if<std::string>(v);
    return s == nullptr ? "" : *s;
}

} // namespace

std::optional<head_file> read_head_file(const std::string & path) {
    const file_header h = read_file_header(path);
    if (text(h, "general.architecture") != "eagle3") {
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

std::string head_mismatch(const std::string & path, const head_file & head, const std::string & target) {
    const file_header h      = read_file_header(target);
    const std::string arch   = text(h, "general.architecture");
    const std::string advice = "; use a head that was made for this target";
    if (!keeps_layer_inputs(arch)) {
        return target + " is a " + arch + " model, and llama.cpp does not give the hidden states of such models to a " +
               "draft head; use a draft model";
    }
    if (const int64_t n = number(h, arch + ".embedding_length"); n != head.n_target) {
        return path + " was made for a target whose hidden states have " + std::to_string(head.n_target) +
               " numbers, and those of " + target + " have " + std::to_string(n) + advice;
    }
    const int64_t n_layer = number(h, arch + ".block_count") - number(h, arch + ".nextn_predict_layers");
    for (const int32_t i : head.layers) {
        if (i < 0 || i >= n_layer) {
            return path + " needs the input of layer " + std::to_string(i) + ", but " + target +
                   " has the layers 0 to " + std::to_string(n_layer - 1) + advice;
        }
    }
    if (!(head.own_embedding && head.own_output) && head.n_embd != head.n_target) {
        return path + " uses its target's matrices, but its states have " + std::to_string(head.n_embd) +
               " numbers and the target's " + std::to_string(head.n_target) + "; convert the head again";
    }
    return {};
}

} // namespace duo
