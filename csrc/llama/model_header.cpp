#include "model_header.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "gguf_handle.h"

namespace duo {

namespace {

[[noreturn]] void refuse(const std::string & path, const std::string & what) {
    throw error(error_kind::bad_value, path + " is corrupt: " + what + "; download or convert it again");
}

// Header integer of any width; `otherwise` if absent, -1 if it is not a single integer.
int64_t header_integer(const gguf_context * g, const std::string & key, int64_t otherwise) {
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
            return otherwise; // some architectures have one value per layer
        default:
            return -1;
    }
}

// Elements of a header array of 32-bit integers; none if it is something else.
std::vector<int64_t> integers(const gguf_context * g, const std::string & key) {
    const int64_t i = gguf_find_key(g, key.c_str());
    if (i < 0 || gguf_get_kv_type(g, i) != GGUF_TYPE_ARRAY) {
        return {};
    }
    const gguf_type type = gguf_get_arr_type(g, i);
    if (type != GGUF_TYPE_UINT32 && type != GGUF_TYPE_INT32) {
        return {};
    }
    const auto * data = static_cast<const uint32_t *>(gguf_get_arr_data(g, i));
    return {data, data + gguf_get_arr_n(g, i)};
}

std::string text(const gguf_context * g, const std::string & key) {
    const int64_t i = gguf_find_key(g, key.c_str());
    return i < 0 || gguf_get_kv_type(g, i) != GGUF_TYPE_STRING ? "" : gguf_get_val_str(g, i);
}

void check_value(const std::string & path, const std::string & key, int64_t x, int64_t lo, int64_t hi) {
    if (x < lo || x > hi) {
        refuse(path, key + " is " + std::to_string(x) + ", which is not between " + std::to_string(lo) + " and " +
                         std::to_string(hi));
    }
}

// Of a list with one value per layer, 0 is a layer that has none of it.
void check_range(const std::string & path, const gguf_context * g, const std::string & key, int64_t lo, int64_t hi) {
    check_value(path, key, header_integer(g, key, lo), lo, hi);
    for (const int64_t x : integers(g, key)) {
        check_value(path, key, x, std::min<int64_t>(lo, 0), hi);
    }
}

// A property of the whole model. libllama refuses a list later; duo would take its largest value first.
void check_single(const std::string & path, const gguf_context * g, const std::string & key) {
    const int64_t i = gguf_find_key(g, key.c_str());
    if (i >= 0 && gguf_get_kv_type(g, i) == GGUF_TYPE_ARRAY) {
        refuse(path, key + " is a list");
    }
}

// libllama divides by the number of heads, except in architectures without attention.
void check_heads(const std::string & path, const gguf_context * g, const std::string & arch) {
    static const std::array without = {"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"};
    const bool              attends = std::find(without.begin(), without.end(), arch) == without.end();
    check_range(path, g, arch + ".attention.head_count", attends ? 1 : 0, 1 << 14);
    check_range(path, g, arch + ".attention.head_count_kv", 0, 1 << 14);
}

// States of another width than the model's own: libllama would be asked for more than it has. Two architectures say so
// themselves.
void check_states(const std::string & path, const gguf_context * g, const std::string & arch) {
    const int64_t n = header_integer(g, arch + ".embedding_length_out", 0);
    if (n != 0 && n != header_integer(g, arch + ".embedding_length", 0) && arch != "deepseek4" && arch != "qwen4exp") {
        throw error(error_kind::unknown_model, path + " is a model for embeddings (" + arch +
                                                   ".embedding_length_out is " + std::to_string(n) +
                                                   "); choose a language model");
    }
}

void check_experts(const std::string & path, const gguf_context * g, const std::string & arch) {
    check_range(path, g, arch + ".expert_count", 0, 1024);
    const int64_t n_expert = header_integer(g, arch + ".expert_count", 0);
    if (n_expert > 0 && gguf_find_key(g, (arch + ".expert_used_count").c_str()) < 0) {
        refuse(path, arch + ".expert_used_count is missing");
    }
    check_range(path, g, arch + ".expert_used_count", n_expert > 0 ? 1 : 0, n_expert);
    for (const int64_t x : integers(g, arch + ".expert_used_count")) {
        if (x < 0 || x > n_expert) {
            refuse(path, arch + ".expert_used_count holds " + std::to_string(x) + " of " + std::to_string(n_expert));
        }
    }
    check_range(path, g, arch + ".expert_group_count", 0, n_expert > 0 ? n_expert - 1 : 0);
    const int64_t n_group = header_integer(g, arch + ".expert_group_count", 0);
    if (n_group > 1 && n_expert % n_group != 0) {
        refuse(path,
               arch + ".expert_group_count is " + std::to_string(n_group) + ", which does not divide the experts");
    }
    check_range(path, g, arch + ".expert_group_used_count", n_group > 1 ? 1 : 0, n_group > 1 ? n_group - 1 : 1024);
}

// Values that the graph may multiply by: NaN and infinity would make every logit NaN. Limits, gates and bounds are
// excluded: they may be infinite, and llama.cpp writes some of all architectures into every file.
bool is_factor(std::string_view name) {
    return name.starts_with("rope.") || name.ends_with("scale") || name.ends_with("softcapping");
}

// A norm asserts that its epsilon is not negative; NaN fails the assertion too.
void check_floats(const std::string & path, const gguf_context * g, const std::string & arch) {
    for (int64_t i = 0; i < gguf_get_n_kv(g); ++i) {
        const std::string_view key = gguf_get_key(g, i);
        if (gguf_get_kv_type(g, i) != GGUF_TYPE_FLOAT32 || !key.starts_with(arch + ".")) {
            continue;
        }
        const std::string_view name       = key.substr(arch.size() + 1);
        const float            x          = gguf_get_val_f32(g, i);
        const bool             is_epsilon = name.ends_with("epsilon");
        if (((is_epsilon || is_factor(name)) && !std::isfinite(x)) || (is_epsilon && x < 0.0f)) {
            refuse(path, std::string(key) + " is " + std::to_string(x));
        }
    }
}

// libllama asserts these values for one architecture. -inf means "no bound" elsewhere, but here it would be a factor.
void check_gate(const std::string & path, const gguf_context * g, const std::string & arch) {
    if (arch != "bailingmoe3") {
        return;
    }
    const std::string bound = arch + ".kda.gate_lower_bound";
    const int64_t     i     = gguf_find_key(g, bound.c_str());
    if (i >= 0 && gguf_get_kv_type(g, i) == GGUF_TYPE_FLOAT32) {
        if (const float x = gguf_get_val_f32(g, i); !std::isfinite(x) || x >= 0.0f) {
            refuse(path, bound + " is " + std::to_string(x) + ", but must be below 0");
        }
    }
    const std::string safe = arch + ".kda.safe_gate";
    const int64_t     j    = gguf_find_key(g, safe.c_str());
    if (j >= 0 && gguf_get_kv_type(g, j) == GGUF_TYPE_BOOL && !gguf_get_val_bool(g, j)) {
        refuse(path, safe + " is false");
    }
}

// libllama asserts that no two tokens have the same text.
void check_tokens(const std::string & path, const gguf_context * g) {
    const int64_t i = gguf_find_key(g, "tokenizer.ggml.tokens");
    if (i < 0 || gguf_get_kv_type(g, i) != GGUF_TYPE_ARRAY || gguf_get_arr_type(g, i) != GGUF_TYPE_STRING) {
        return; // libllama reports this itself
    }
    const size_t                                 n = gguf_get_arr_n(g, i);
    std::unordered_map<std::string_view, size_t> seen(n);
    for (size_t t = 0; t < n; ++t) {
        const std::string_view word = gguf_get_arr_str(g, i, t);
        const auto [it, fresh]      = seen.emplace(word, t);
        if (!fresh && !word.empty()) {
            refuse(path, "tokens " + std::to_string(it->second) + " and " + std::to_string(t) +
                             " of its vocabulary have the same text");
        }
    }
}

} // namespace

void check_model_header(const std::string & path, const gguf_context * g) {
    if (const int64_t no = header_integer(g, "split.no", 0); no > 0) {
        throw error(error_kind::unknown_model, path + " is part " + std::to_string(no + 1) + " of " +
                                                   std::to_string(header_integer(g, "split.count", 0)) +
                                                   " of a model; give its first part");
    }
    const std::string arch = text(g, "general.architecture");
    if (arch.empty()) {
        throw error(
            error_kind::unknown_model,
            path + " names no architecture (general.architecture), so it is not a language model; choose another file");
    }
    if (arch == "clip") {
        throw error(error_kind::unknown_model,
                    path + " is an image encoder, not a language model; choose another file");
    }
    for (const char * name : {".block_count", ".embedding_length", ".context_length", ".nextn_predict_layers"}) {
        check_single(path, g, arch + name);
    }
    check_range(path, g, arch + ".block_count", 1, 512);
    check_range(path, g, arch + ".embedding_length", 1, 1 << 20);
    check_range(path, g, arch + ".context_length", 1, INT32_MAX);
    check_range(path, g, arch + ".feed_forward_length", 0, 1 << 24);
    check_heads(path, g, arch);
    check_range(path, g, arch + ".attention.key_length", 1, 1 << 14);
    check_range(path, g, arch + ".attention.value_length", 1, 1 << 14);
    check_range(path, g, arch + ".rope.dimension_count", 0, 1 << 14);
    check_range(path, g, arch + ".nextn_predict_layers", 0, header_integer(g, arch + ".block_count", 0));

    check_experts(path, g, arch);
    check_states(path, g, arch);
    check_range(path, g, "split.count", 0, 1 << 14);

    const std::string scaling = text(g, arch + ".rope.scaling.type");
    if (gguf_find_key(g, (arch + ".rope.scaling.type").c_str()) >= 0 && scaling != "none" && scaling != "linear" &&
        scaling != "yarn" && scaling != "longrope") {
        refuse(path, arch + ".rope.scaling.type is '" + scaling + "'");
    }
    check_floats(path, g, arch);
    check_gate(path, g, arch);
    check_tokens(path, g);
}

std::string architecture_of(const std::string & path) {
    const gguf_handle g(path);
    return g ? text(g.get(), "general.architecture") : "";
}

} // namespace duo
