#include "head_shapes.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace duo {

namespace {

constexpr int64_t n_most        = 1 << 24; // of any number here: so that products fit
constexpr int64_t n_layers_most = 512;     // LLAMA_MAX_LAYERS
constexpr int64_t any           = -1;      // rows that another check compares

struct wanted {
    std::string          name;
    std::vector<int64_t> shape; // columns first
    bool                 needed = true;
};

// A list of one number for each layer counts by its first one.
int64_t first_number(const file_header & h, const std::string & key, int64_t otherwise) {
    if (const auto * n = h.value_as<int64_t>(key); n != nullptr) {
        return *n;
    }
    const auto * list = h.value_as<std::vector<int64_t>>(key);
    return list == nullptr || list->empty() ? otherwise : list->front();
}

std::string in_words(const std::vector<int64_t> & shape) {
    std::string out;
    for (const int64_t n : shape) {
        out += (out.empty() ? "" : " x ") + (n == any ? "?" : std::to_string(n));
    }
    return out;
}

bool equal(std::vector<int64_t> found, std::vector<int64_t> shape) {
    found.resize(4, 1); // libllama takes a missing dimension for 1
    shape.resize(4, 1);
    return std::equal(found.begin(), found.end(), shape.begin(),
                      [](int64_t a, int64_t b) { return b == any || a == b; });
}

// What the header says of a head's layers.
struct sizes {
    int64_t n_embd, n_ff, n_layer, n_head, n_head_kv, n_key, n_value, n_inputs;
};

std::string impossible(const std::string & arch, const sizes & s) {
    const std::pair<const char *, int64_t> all[] = {
        {"embedding_length", s.n_embd},
        {"feed_forward_length", s.n_ff},
        {"block_count", s.n_layer},
        {"attention.head_count", s.n_head},
        {"attention.head_count_kv", s.n_head_kv},
        {"attention.key_length", s.n_key},
        {"attention.value_length", s.n_value},
    };
    for (const auto & [key, n] : all) {
        if (n < 1 || n > n_most) {
            return " has an impossible value of " + arch + "." + key + ", or none";
        }
    }
    if (s.n_layer > n_layers_most) {
        return " has more layers than libllama takes (" + std::to_string(n_layers_most) + ")";
    }
    return s.n_head % s.n_head_kv == 0 ? ""
                                       : " has " + std::to_string(s.n_head) + " heads for " +
                                             std::to_string(s.n_head_kv) + " of keys, which do not divide them";
}

std::vector<wanted> layer_of(const std::string & layer, const sizes & s, bool eagle3) {
    const int64_t       n_in = eagle3 ? 2 * s.n_embd : s.n_embd;
    std::vector<wanted> out{{"attn_norm.weight", {s.n_embd}},
                            {"attn_q.weight", {n_in, s.n_key * s.n_head}},
                            {"attn_k.weight", {n_in, s.n_key * s.n_head_kv}},
                            {"attn_v.weight", {n_in, s.n_value * s.n_head_kv}, eagle3},
                            {"attn_output.weight", {s.n_key * s.n_head, s.n_embd}},
                            {"ffn_norm.weight", {s.n_embd}},
                            {"ffn_gate.weight", {s.n_embd, s.n_ff}},
                            {"ffn_up.weight", {s.n_embd, s.n_ff}},
                            {"ffn_down.weight", {s.n_ff, s.n_embd}}};
    if (eagle3) {
        out.push_back({"attn_norm_2.weight", {s.n_embd}});
    } else {
        out.insert(out.end(), {{"attn_q_norm.weight", {s.n_key}},
                               {"attn_k_norm.weight", {s.n_key}},
                               {"post_attention_norm.weight", {s.n_embd}, false},
                               {"post_ffw_norm.weight", {s.n_embd}, false},
                               {"layer_output_scale.weight", {1}, false},
                               {"attn_sinks.weight", {s.n_head}, false}});
    }
    for (wanted & w : out) {
        w.name = layer + w.name;
    }
    return out;
}

std::vector<wanted> all_of(const file_header & h, const sizes & s, bool eagle3) {
    const auto *        norm_first = h.value_as<bool>("eagle3.norm_before_fc");
    const bool          has_norm   = !eagle3 || (norm_first != nullptr && *norm_first);
    const auto *        d2t        = h.tensor("d2t");
    const auto *        w1         = h.tensor("markov_w1.weight");
    const int64_t       n_proposed = d2t == nullptr || d2t->shape.empty() ? any : d2t->shape.front();
    std::vector<wanted> out{{"fc.weight", {s.n_inputs, s.n_embd}},
                            {"output_norm.weight", {s.n_embd}},
                            {"output.weight", {s.n_embd, n_proposed}, false},
                            {"token_embd.weight", {s.n_embd, any}, false},
                            {"d2t", {n_proposed}, false},
                            {"rope_freqs.weight", {any}, false}};
    if (has_norm) {
        out.push_back({"enc.output_norm.weight", {eagle3 ? s.n_inputs : s.n_embd}});
    }
    if (!eagle3 && w1 != nullptr && !w1->shape.empty()) {
        const int64_t rank = w1->shape.front();
        out.insert(out.end(), {{"markov_w1.weight", {rank, any}},
                               {"markov_w2.weight", {rank, n_proposed}},
                               {"conf_proj.weight", {s.n_embd + rank, 1}, false},
                               {"conf_proj.bias", {1}, false}});
    }
    for (int64_t i = 0; i < s.n_layer; ++i) {
        const auto layer = layer_of("blk." + std::to_string(i) + ".", s, eagle3);
        out.insert(out.end(), layer.begin(), layer.end());
    }
    return out;
}

std::string fault_of(const file_header & h, const wanted & w) {
    const header_tensor * t = h.tensor(w.name);
    if (t == nullptr) {
        return w.needed ? " has no tensor " + w.name + ", which such a head needs" : "";
    }
    return equal(t->shape, w.shape) ? ""
                                    : " has a tensor " + w.name + " of " + in_words(t->shape) +
                                          " numbers, and by its header it has " + in_words(w.shape);
}

std::string compared(const file_header & h, const std::vector<wanted> & all) {
    for (const wanted & w : all) {
        if (std::string why = fault_of(h, w); !why.empty()) {
            return why;
        }
    }
    for (const header_tensor & t : h.tensors) {
        const bool known = t.name.ends_with("scale") || // of quantised weights; optional
                           std::any_of(all.begin(), all.end(), [&t](const wanted & w) { return w.name == t.name; });
        if (!known) {
            return " has a tensor " + t.name + ", which such a head does not have";
        }
    }
    return "";
}

// Of MTP layers only what joins them to the target; the rest is that of the architecture.
std::string fault_of_mtp(const file_header & h, const std::string & arch) {
    const int64_t n_embd = first_number(h, arch + ".embedding_length", 0);
    const int64_t n_first =
        first_number(h, arch + ".block_count", 0) - first_number(h, arch + ".nextn_predict_layers", 0);
    return fault_of(h, {"blk." + std::to_string(n_first) + ".nextn.eh_proj.weight", {2 * n_embd, n_embd}, false});
}

} // namespace

std::string head_shape_fault(const file_header & h) {
    const auto * arch = h.value_as<std::string>("general.architecture");
    if (arch == nullptr) {
        return "";
    }
    if (*arch != "eagle3" && *arch != "dflash") {
        return fault_of_mtp(h, *arch);
    }
    const bool eagle3 = *arch == "eagle3";
    const auto of     = [&](const std::string & key, int64_t otherwise) {
        return first_number(h, *arch + "." + key, otherwise);
    };
    const auto * layers = h.value_as<std::vector<int64_t>>(*arch + ".target_layers");
    sizes        s{};
    s.n_embd               = of("embedding_length", 0);
    s.n_ff                 = of("feed_forward_length", 0);
    s.n_layer              = of("block_count", 0);
    s.n_head               = of("attention.head_count", 0);
    s.n_head_kv            = of("attention.head_count_kv", s.n_head);
    s.n_key                = of("attention.key_length", s.n_head > 0 ? s.n_embd / s.n_head : 0);
    s.n_value              = of("attention.value_length", s.n_head > 0 ? s.n_embd / s.n_head : 0);
    const int64_t n_target = eagle3 ? of("target_hidden_size", 0) : s.n_embd;
    s.n_inputs             = int64_t(layers == nullptr ? 0 : layers->size()) * n_target;
    const std::string why  = impossible(*arch, s);
    return why.empty() ? compared(h, all_of(h, s, eagle3)) : why;
}

} // namespace duo
