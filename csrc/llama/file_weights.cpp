#include "file_weights.h"

#include <array>
#include <regex>

#include <llama.h>

#include "gguf_handle.h"

namespace duo {

namespace {

// Tensors that libllama uses only in matrix products, and only whole (src/models: no views of these).
constexpr std::array kinds = {
    "attn_q",         "attn_k",           "attn_v",          "attn_qkv",      "attn_output",
    "attn_gate",      "attn_q_a",         "attn_q_b",        "attn_kv_a_mqa", "attn_kv_b",
    "ffn_gate",       "ffn_up",           "ffn_down",        "ffn_gate_exps", "ffn_up_exps",
    "ffn_down_exps",  "ffn_gate_up_exps", "ffn_gate_chexps", "ffn_up_chexps", "ffn_down_chexps",
    "ffn_gate_shexp", "ffn_up_shexp",     "ffn_down_shexp",  "nextn.eh_proj", "nextn.shared_head_head"};

// The same, of recurrent layers.
constexpr std::array recurrent = {"ssm_in", "ssm_out", "shortconv.in_proj", "shortconv.out_proj"};

// Routers of experts. They are small, and F32 as a rule.
constexpr std::array routers = {"ffn_gate_inp", "ffn_gate_inp_shexp"};

bool is_experts(const std::string & kind) {
    return kind.ends_with("_exps") || kind.ends_with("_chexps");
}

// "blk.7.ffn_up.weight" is layer 7, kind ffn_up. False: duo's kernels may not take it.
bool parse_name(const std::string & name, file_weight & w) {
    static const std::regex form(R"(blk\.([0-9]{1,5})\.((?:nextn\.|shortconv\.)?[a-z0-9_]+)(\.weight)?)");
    std::smatch             m;
    if (!std::regex_match(name, m, form)) {
        return false;
    }
    w.layer = std::stoi(m[1]);
    w.kind  = m[2];
    return m[3].matched && (has(kinds, w.kind) || has(recurrent, w.kind) || has(routers, w.kind));
}

int64_t header_number(const gguf_context * g, const std::string & key) {
    const int64_t i = gguf_find_key(g, key.c_str());
    return i >= 0 && gguf_get_kv_type(g, i) == GGUF_TYPE_UINT32 ? gguf_get_val_u32(g, i) : 0;
}

void read_file(const std::string & path, file_weights & out, std::vector<file_weight> & embedding, int & n_split) {
    const gguf_handle g(path);
    if (!g) {
        return; // loading will report the error
    }
    if (const int64_t key = gguf_find_key(g.get(), "split.count");
        key >= 0 && gguf_get_kv_type(g.get(), key) == GGUF_TYPE_UINT16) {
        n_split = std::max<int>(1, gguf_get_val_u16(g.get(), key));
    }
    for (ggml_tensor * t = ggml_get_first_tensor(g.tensors()); t != nullptr; t = ggml_get_next_tensor(g.tensors(), t)) {
        file_weight w{ggml_get_name(t), "", -1, t->type, t->ne[0], t->ne[1], t->ne[2] * t->ne[3]};
        const bool  known = parse_name(w.name, w) || w.name == "output.weight" || w.name == name_fc;
        if (w.name == "token_embd.weight") {
            embedding.push_back(w);
        } else if (known && has(routers, w.kind)) {
            out.routers.push_back(w);
        } else if (known && (w.n_matrices == 1 || is_experts(w.kind))) {
            out.n_layer = std::max<int64_t>(out.n_layer, w.layer + 1);
            out.all.push_back(w);
        } else if (ggml_n_dims(t) > 1 && t->type != GGML_TYPE_F32) {
            out.others.push_back(w); // matrices of some other architecture
        } else if (ggml_n_dims(t) > 1 && !w.name.ends_with(".bias")) {
            out.small.push_back(w.layer);
        }
        out.has_mtp    = out.has_mtp || w.kind == "nextn.eh_proj";
        out.has_planes = out.has_planes || w.kind == "attn_k_b" || w.kind == "attn_v_b" || // one for each head
                         (w.n_matrices > 1 && !is_experts(w.kind));
    }
    const int64_t arch = gguf_find_key(g.get(), "general.architecture");
    if (arch >= 0 && gguf_get_kv_type(g.get(), arch) == GGUF_TYPE_STRING) {
        const std::string name = gguf_get_val_str(g.get(), arch);
        out.n_layer            = std::max(out.n_layer, header_number(g.get(), name + ".block_count"));
        out.n_mtp              = std::max(out.n_mtp, header_number(g.get(), name + ".nextn_predict_layers"));
    }
}

} // namespace

bool is_recurrent(const file_weight & w) {
    return has(recurrent, w.kind);
}

file_weights read_weights(const std::string & path) {
    file_weights             out;
    std::vector<file_weight> embedding;
    int                      n_split = 1;
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
    if (std::none_of(out.all.begin(), out.all.end(), [](const file_weight & w) { return w.layer < 0; })) {
        out.all.insert(out.all.end(), embedding.begin(), embedding.end());
    }
    return out;
}

} // namespace duo
