#include "weight_placement.h"

#include <algorithm>
#include <array>
#include <map>
#include <regex>
#include <set>

#include "base/error.h"
#include "cpu/ggml_buffer.h"
#include "cpu/ggml_device.h"
#include "cpu/requantise.h"
#include "gguf_handle.h"

namespace duo {

namespace {

// Tensors that libllama uses only in matrix products, and only whole (src/models: no views of these).
constexpr std::array kinds = {
    "attn_q",         "attn_k",       "attn_v",         "attn_qkv",      "attn_output",           "ffn_gate",
    "ffn_up",         "ffn_down",     "ffn_gate_exps",  "ffn_up_exps",   "ffn_gate_up_exps",      "ffn_down_exps",
    "ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp", "nextn.eh_proj", "nextn.shared_head_head"};

// A draft head's, for the target's hidden states (EAGLE-3). It goes where the output matrix goes.
constexpr const char * name_fc = "fc.weight";

// A weight of a matrix product. layer: -1 for the output matrix and a head's fc.
struct weight {
    std::string name;
    std::string kind;
    int         layer;
    ggml_type   type;
    int64_t     n_columns, n_rows, n_matrices;
};

template <class C, class T> bool has(const C & all, const T & one) {
    return std::find(all.begin(), all.end(), one) != all.end();
}

bool is_kind(const std::string & name) {
    return has(kinds, name);
}

// GGML_TYPE_COUNT: there is no such type.
ggml_type type_named(const std::string & name) {
    for (int t = 0; t < GGML_TYPE_COUNT; ++t) {
        if (const char * known = ggml_type_name(ggml_type(t)); known != nullptr && name == known) {
            return ggml_type(t);
        }
    }
    return GGML_TYPE_COUNT;
}

// "blk.7.ffn_up.weight" is layer 7, kind ffn_up.
bool parse(const std::string & name, weight & w) {
    static const std::regex form(R"(blk\.([0-9]{1,5})\.((?:nextn\.)?[a-z0-9_]+)(\.weight)?)");
    std::smatch             m;
    if (!std::regex_match(name, m, form)) {
        return false;
    }
    w.layer = std::stoi(m[1]);
    w.kind  = m[2];
    return m[3].matched && is_kind(w.kind);
}

struct file_weights {
    std::vector<weight> all;    // products that duo's kernels may take
    std::vector<weight> others; // products that they may not take
    std::vector<int>    small;  // layers of other F32 matrices
    int64_t             n_layer    = 0;
    int64_t             n_mtp      = 0; // of these layers, the last ones
    bool                has_mtp    = false;
    bool                has_planes = false;
};

int64_t header_number(const gguf_context * g, const std::string & key) {
    const int64_t i = gguf_find_key(g, key.c_str());
    return i >= 0 && gguf_get_kv_type(g, i) == GGUF_TYPE_UINT32 ? gguf_get_val_u32(g, i) : 0;
}

void read_file(const std::string & path, file_weights & out, std::vector<weight> & embedding, int & n_split) {
    const gguf_handle g(path);
    if (!g) {
        return; // loading will report the error
    }
    if (const int64_t key = gguf_find_key(g.get(), "split.count");
        key >= 0 && gguf_get_kv_type(g.get(), key) == GGUF_TYPE_UINT16) {
        n_split = std::max<int>(1, gguf_get_val_u16(g.get(), key));
    }
    for (ggml_tensor * t = ggml_get_first_tensor(g.tensors()); t != nullptr; t = ggml_get_next_tensor(g.tensors(), t)) {
        weight w{ggml_get_name(t), "", -1, t->type, t->ne[0], t->ne[1], t->ne[2] * t->ne[3]};
        if (w.name == "token_embd.weight") {
            embedding.push_back(w);
        } else if ((w.name == "output.weight" || w.name == name_fc || parse(w.name, w)) &&
                   (w.n_matrices == 1 || w.kind.ends_with("_exps"))) {
            out.n_layer = std::max<int64_t>(out.n_layer, w.layer + 1);
            out.all.push_back(w);
        } else if (ggml_n_dims(t) > 1 && t->type != GGML_TYPE_F32) {
            out.others.push_back(w); // matrices of some other architecture
        } else if (ggml_n_dims(t) > 1) {
            out.small.push_back(w.layer);
        }
        out.has_mtp    = out.has_mtp || w.kind == "nextn.eh_proj";
        out.has_planes = out.has_planes || w.kind == "attn_k_b" || w.kind == "attn_v_b" || // one for each head
                         (w.n_matrices > 1 && !w.kind.ends_with("_exps"));
    }
    const int64_t arch = gguf_find_key(g.get(), "general.architecture");
    if (arch >= 0 && gguf_get_kv_type(g.get(), arch) == GGUF_TYPE_STRING) {
        const std::string name = gguf_get_val_str(g.get(), arch);
        out.n_layer            = std::max(out.n_layer, header_number(g.get(), name + ".block_count"));
        out.n_mtp              = std::max(out.n_mtp, header_number(g.get(), name + ".nextn_predict_layers"));
    }
}

file_weights read_weights(const std::string & path) {
    file_weights        out;
    std::vector<weight> embedding;
    int                 n_split = 1;
    read_file(path, out, embedding, n_split);
    std::array<char, 4096> prefix{};
    if (n_split > 1 && llama_split_prefix(prefix.data(), prefix.size(), path.c_str(), 0, n_split) > 0) {
        for (int i = 1; i < n_split; ++i) {
            std::array<char, 4200> part{};
            int                    same = n_split;
            llama_split_path(part.data(), part.size(), prefix.data(), i, n_split);
            read_file(part.data(), out, embedding, same);
        }
    }
    // Tied embeddings: they are the output matrix too, and libllama finds both under one name. A draft head without an
    // output matrix uses its target's.
    if (std::none_of(out.all.begin(), out.all.end(), [](const weight & w) { return w.layer < 0; })) {
        out.all.insert(out.all.end(), embedding.begin(), embedding.end());
    }
    return out;
}

std::string buffer_names() {
    std::string known;
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        const std::string name = ggml_backend_buft_name(ggml_backend_dev_buffer_type(ggml_backend_dev_get(i)));
        if ((", " + known + ",").find(", " + name + ",") == std::string::npos) {
            known += (known.empty() ? "" : ", ") + name;
        }
    }
    return known;
}

} // namespace

weight_placement::weight_placement(const std::string & path, const std::vector<std::string> & types,
                                   int32_t                                                  n_gpu_layers,
                                   const std::vector<std::pair<std::string, std::string>> & overrides, bool mtp,
                                   const weight_packing & packing) {
    read_choices(overrides);
    place_duo(path, types, n_gpu_layers, mtp, packing);
    // libllama takes the first pattern that fits, and duo's fit only its own weights.
    for (const choice & c : choices_) {
        add(c.text, c.memory);
    }
    if (!entries_.empty()) {
        entries_.push_back({nullptr, nullptr});
    }
}

const llama_model_tensor_buft_override * weight_placement::entries() const {
    return entries_.empty() ? nullptr : entries_.data();
}

std::map<std::string, uint64_t> weight_placement::cpu_bytes() const {
    return bytes_known_ ? cpu_bytes_ : std::map<std::string, uint64_t>{};
}

void weight_placement::add(const std::string & pattern, ggml_backend_buffer_type_t buft) {
    entries_.push_back({patterns_.emplace_back(pattern).c_str(), buft});
}

void weight_placement::read_choices(const std::vector<std::pair<std::string, std::string>> & overrides) {
    for (const auto & [pattern, buffer] : overrides) {
        std::regex checked;
        try {
            checked = std::regex(pattern);
        } catch (const std::regex_error &) {
            throw error(error_kind::bad_value,
                        "the pattern " + pattern + " (-ot) is not a valid regular expression; check it");
        }
        ggml_backend_buffer_type_t found = nullptr;
        for (size_t i = 0; i < ggml_backend_dev_count() && found == nullptr; ++i) {
            ggml_backend_buffer_type_t t = ggml_backend_dev_buffer_type(ggml_backend_dev_get(i));
            found                        = buffer == ggml_backend_buft_name(t) ? t : nullptr;
        }
        if (found == nullptr) {
            throw error(error_kind::bad_value, "unknown memory " + buffer + " (-ot); choose from " + buffer_names());
        }
        choices_.push_back({checked, pattern, found});
    }
}

const weight_placement::choice * weight_placement::choice_of(const std::string & name) const {
    const auto c = std::find_if(choices_.begin(), choices_.end(),
                                [&](const choice & x) { return std::regex_search(name, x.pattern); });
    return c == choices_.end() ? nullptr : &*c;
}

void weight_placement::count_bytes(ggml_type type, int64_t n_columns, int64_t n_rows, int64_t n_matrices) {
    bytes_known_ = bytes_known_ && n_matrices == 1;
    cpu_bytes_[ggml_type_name(type)] += uint64_t(n_rows * n_matrices) * ggml_row_size(type, n_columns);
}

void weight_placement::place_duo(const std::string & path, const std::vector<std::string> & types, int32_t n_gpu_layers,
                                 bool mtp, const weight_packing & packing) {
    const file_weights file    = read_weights(path);
    const int64_t      n_trunk = file.n_layer - file.n_mtp;
    has_mtp_                   = file.has_mtp;
    has_planes_                = file.has_planes;
    has_trunk_                 = !file.has_mtp || std::any_of(file.all.begin(), file.all.end(),
                                                              [&](const weight & w) { return w.layer >= 0 && w.layer < n_trunk; });
    const auto counts          = [&](int layer) { return layer < n_trunk || !has_trunk_; };
    // The split of llama_model::load_tensors: the last layers go to the devices, and the output matrix counts as a
    // layer.
    const int64_t n_all       = file.n_layer + 1;
    const int64_t i_gpu_start = n_gpu_layers < 0 ? 0 : std::max<int64_t>(n_all - n_gpu_layers, 0);

    ggml_backend_buffer_type_t       buft   = types.empty() ? nullptr : cpu::weight_buffer_type();
    const ggml_type                  stored = packing.stored.empty() ? GGML_TYPE_COUNT : type_named(packing.stored);
    const ggml_backend_buffer_type_t packed = stored == GGML_TYPE_COUNT ? nullptr : cpu::draft_buffer_type(stored);
    using memory                            = ggml_backend_buffer_type_t;
    std::map<std::pair<memory, std::string>, std::set<int>> taken;  // layers of each kind for duo's kernels
    std::vector<std::pair<std::string, memory>>             others; // patterns of matrices outside the layers
    const auto to_cpu = [](const choice * c) { return c != nullptr && c->memory == ggml_backend_cpu_buffer_type(); };
    n_small_          = int(std::count_if(file.small.begin(), file.small.end(), counts));
    for (const weight & w : file.others) {
        if ((w.layer < i_gpu_start || to_cpu(choice_of(w.name))) && counts(w.layer)) {
            ++n_stock_;
            count_bytes(w.type, w.n_columns, w.n_rows, w.n_matrices);
        }
    }
    for (const weight & w : file.all) {
        const bool     counted   = counts(w.layer);
        const choice * chosen    = choice_of(w.name);
        const bool     elsewhere = chosen != nullptr && !to_cpu(chosen);
        const bool     on_gpu    = (w.layer < 0 ? file.n_layer : w.layer) >= i_gpu_start;
        if ((on_gpu && !to_cpu(chosen)) || !(counted || mtp)) {
            continue;
        }
        const std::string type = ggml_type_name(w.type);
        if (!elsewhere && std::find(cpu_types_.begin(), cpu_types_.end(), type) == cpu_types_.end()) {
            cpu_types_.push_back(type);
        }
        const bool repacks = !elsewhere && packed != nullptr && has(packing.types, type) &&
                             cpu::shape_of(stored, w.n_columns, w.n_rows) &&
                             cpu::conversion(w.type, stored, w.n_columns);
        const auto shape = cpu::shape_of(repacks ? stored : w.type, w.n_columns, w.n_rows);
        if (counted) {
            count_bytes(repacks ? stored : w.type, w.n_columns, w.n_rows, w.n_matrices);
        }
        if (!repacks && (elsewhere || buft == nullptr || !shape || !has(types, type))) {
            n_stock_ += counted ? 1 : 0;
            continue;
        }
        n_duo_ += counted ? 1 : 0;
        n_packed_ += repacks ? 1 : 0;
        const memory to = repacks ? packed : buft;
        duo_output_     = w.layer < 0 && w.name != name_fc ? w.name : duo_output_;
        if (w.layer < 0) {
            others.emplace_back("^" + w.name.substr(0, w.name.find('.')) + R"(\.weight$)", to);
        } else {
            taken[{to, w.kind}].insert(w.layer);
        }
    }
    // libllama compiles every pattern for every tensor, so kinds with the same layers share a pattern.
    std::map<std::pair<std::set<int>, memory>, std::string> by_layers;
    for (const auto & [where, layers] : taken) {
        std::string & names = by_layers[{layers, where.first}];
        names += (names.empty() ? "" : "|") + where.second;
    }
    for (const auto & [key, names] : by_layers) {
        const auto & [layers, to] = key;
        std::string numbers;
        for (const int layer : layers) {
            numbers += (numbers.empty() ? "" : "|") + std::to_string(layer);
        }
        add("^blk\\.(" + (int64_t(layers.size()) == file.n_layer ? "[0-9]+" : numbers) + ")\\.(" + names +
                ")\\.weight$",
            to);
    }
    for (const auto & [pattern, to] : others) {
        add(pattern, to);
    }
}

} // namespace duo
