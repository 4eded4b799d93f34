#include "head_file.h"

#include <algorithm>
#include <limits>
#include <variant>

#include "base/error.h"
#include "file_header.h"
#include "head_shapes.h"
#include "hidden.h"

namespace duo {

namespace {

constexpr size_t       n_layers_eagle3 = 3;
constexpr int64_t      n_most          = 1 << 20; // floats of a hidden state
constexpr const char * advice_of_head  = "; use a head that was made for this target";

int64_t whole_number(const file_header & h, const std::string & key) {
    const auto * n = h.value_as<int64_t>(key);
    return n == nullptr ? 0 : *n;
}

std::string header_text(const file_header & h, const std::string & key) {
    const auto * s = h.value_as<std::string>(key);
    return s == nullptr ? "" : *s;
}

bool flag(const file_header & h, const std::string & key, bool otherwise) {
    const auto * b = h.value_as<bool>(key);
    return b == nullptr ? otherwise : *b;
}

bool has_tensor(const file_header & h, const std::string & name) {
    return h.tensor(name) != nullptr;
}

// Heads that duo does not run.
void refuse_others(const std::string & path, const std::string & arch) {
    const std::string advice = "; use a draft model, an EAGLE-3 head or MTP layers";
    if (arch == "gemma4-assistant") {
        throw error(error_kind::bad_value,
                    path + " is Gemma 4's assistant, which reads its target's cache, so it cannot work beside the " +
                        "target" + advice);
    }
}

// 0, 1, ... layers of the target whose inputs the head reads; empty: the file names none.
std::vector<int32_t> target_layers(const file_header & h, const std::string & arch) {
    const auto * layers = h.value_as<std::vector<int64_t>>(arch + ".target_layers");
    return layers == nullptr ? std::vector<int32_t>() : std::vector<int32_t>(layers->begin(), layers->end());
}

// Kinds that libllama computes (src/models/dflash.cpp), but whose blocks do not end with logits that stand alone.
void refuse_other_blocks(const std::string & path, const file_header & h) {
    const char * kind = has_tensor(h, "selector_hidden.weight")                ? "a DFlash 2 head with a selector"
                        : whole_number(h, "dflash.hyper_connection.count") > 0 ? "a DSpark head of DeepSeek V4"
                                                                               : nullptr;
    if (kind != nullptr) {
        throw error(error_kind::bad_value, path + " is " + kind +
                                               ", which duo does not support yet; use a DFlash head, " +
                                               "an EAGLE-3 head or a draft model");
    }
}

head_file read_dflash(const std::string & path, const file_header & h) {
    refuse_other_blocks(path, h);
    constexpr int64_t n_block_most  = 64;
    constexpr size_t  n_layers_most = 16;
    head_file         out{.kind = head_kind::dflash};
    out.layers        = target_layers(h, "dflash");
    out.n_embd        = whole_number(h, "dflash.embedding_length");
    out.n_target      = out.n_embd; // libllama takes them to be equal
    const int64_t n   = whole_number(h, "dflash.block_size");
    out.own_embedding = has_tensor(h, "token_embd.weight");
    out.own_output    = out.own_embedding || has_tensor(h, "output.weight"); // else the embedding is the output matrix
    const int64_t mask =
        h.value("tokenizer.ggml.mask_token_id") == nullptr ? -1 : whole_number(h, "tokenizer.ggml.mask_token_id");
    if (out.layers.empty() || out.layers.size() > n_layers_most || out.n_embd < 1 || out.n_embd > n_most || n < 2 ||
        mask < 0 || mask > std::numeric_limits<int32_t>::max()) {
        throw error(error_kind::bad_value,
                    path + " is no DFlash head that llama.cpp can run: it must name the layers of its target that it "
                           "reads (dflash.target_layers), a block of two tokens or more (dflash.block_size) and the "
                           "token of its masks (tokenizer.ggml.mask_token_id)");
    }
    out.n_block = int32_t(std::min(n, n_block_most));
    out.mask    = int32_t(mask);
    out.causal  = flag(h, "dflash.attention.causal", false);
    out.chained = has_tensor(h, "markov_w1.weight");
    out.n_known = out.chained && flag(h, "dflash.sample_from_anchor", true) ? 0 : 1;
    return out;
}

head_file read_eagle3(const std::string & path, const file_header & h) {
    head_file out;
    out.layers   = target_layers(h, "eagle3");
    out.n_target = whole_number(h, "eagle3.target_hidden_size");
    out.n_embd   = whole_number(h, "eagle3.embedding_length");
    if (out.layers.size() != n_layers_eagle3 || out.n_target < 1 || out.n_target > n_most ||
        whole_number(h, "eagle3.block_count") != 1) {
        throw error(error_kind::bad_value,
                    path +
                        " is no EAGLE-3 head that llama.cpp can run: it must have one layer, read three layers of its "
                        "target (eagle3.target_layers) and say how wide they are (eagle3.target_hidden_size)");
    }
    out.own_embedding = has_tensor(h, "token_embd.weight");
    out.own_output    = has_tensor(h, "output.weight");
    return out;
}

// Layers before the MTP layers, which are the last ones.
int64_t n_trunk(const file_header & h, const std::string & arch) {
    return whole_number(h, arch + ".block_count") - whole_number(h, arch + ".nextn_predict_layers");
}

// libllama's graphs of MTP layers end the process where they meet something that they do not expect.
bool can_run_mtp(const file_header & h, const std::string & arch, const std::string & layer) {
    const auto * n         = h.value_as<std::vector<int64_t>>(arch + ".rope.dimension_sections");
    const bool   sections  = n != nullptr && std::any_of(n->begin(), n->end(), [](int64_t x) { return x > 0; });
    const bool   several   = arch == "hy_v3" || arch == "mimo2" || arch == "step35"; // may have several layers
    const bool   is_latent = arch == "deepseek2" || arch == "deepseek32" || arch == "glm-dsa";
    return runs_mtp(arch) && (several || whole_number(h, arch + ".nextn_predict_layers") == 1) &&
           !(arch == "glm4moe" && sections) && !(is_latent && h.value(arch + ".attention.key_length_mla") == nullptr) &&
           h.value(arch + ".attention.temperature_scale") == nullptr &&
           !(arch == "mimo2" && !has_tensor(h, layer + ".attn_qkv.weight"));
}

std::optional<head_file> read_mtp(const std::string & path, const file_header & h, const std::string & arch,
                                  bool wanted) {
    const std::string layer = "blk." + std::to_string(n_trunk(h, arch));
    const bool        has_mtp =
        whole_number(h, arch + ".nextn_predict_layers") > 0 && has_tensor(h, layer + ".nextn.eh_proj.weight");
    if (!has_mtp && wanted) {
        throw error(error_kind::bad_value, path + " has no MTP layers (--spec-type draft-mtp); give a file that has " +
                                               "them (-md), or use another draft");
    }
    if (!has_mtp || (has_tensor(h, "blk.0.attn_norm.weight") && !wanted)) {
        return std::nullopt;
    }
    if (!can_run_mtp(h, arch, layer)) {
        throw error(error_kind::bad_value,
                    path + " has MTP layers of a kind (" + arch + ") that duo cannot run; use another draft");
    }
    const int64_t n_embd = whole_number(h, arch + ".embedding_length");
    return head_file{.kind = head_kind::mtp, .layers = {}, .n_target = n_embd, .n_embd = n_embd};
}

} // namespace

std::optional<head_file> read_head_file(const std::string & path, bool mtp) {
    const file_header h    = read_file_header(path);
    const std::string arch = header_text(h, "general.architecture");
    refuse_others(path, arch);
    if (arch == "dflash" && !mtp) {
        return read_dflash(path, h);
    }
    return arch == "eagle3" && !mtp ? read_eagle3(path, h) : read_mtp(path, h, arch, mtp);
}

std::string head_mismatch(const std::string & path, const head_file & head, const std::string & target) {
    const file_header h    = read_file_header(target);
    const std::string arch = header_text(h, "general.architecture");
    if (head.kind == head_kind::mtp) {
        const std::string own = header_text(read_file_header(path), "general.architecture");
        if (own != arch) {
            return path + " has the MTP layers of a " + own + " model, and " + target + " is a " + arch + " model" +
                   advice_of_head;
        }
    }
    if (head.kind != head_kind::mtp && !keeps_layer_inputs(arch)) {
        return target + " is a " + arch + " model, and llama.cpp does not give the hidden states of such models to a " +
               "draft head; use a draft model";
    }
    if (const int64_t n = whole_number(h, arch + ".embedding_length"); n != head.n_target) {
        return path + " was made for a target whose hidden states have " + std::to_string(head.n_target) +
               " numbers, and those of " + target + " have " + std::to_string(n) + advice_of_head;
    }
    const int64_t n_layer = n_trunk(h, arch);
    for (const int32_t i : head.layers) {
        if (i < 0 || i >= n_layer) {
            return path + " needs the input of layer " + std::to_string(i) + ", but " + target +
                   " has the layers 0 to " + std::to_string(n_layer - 1) + advice_of_head;
        }
    }
    if (!(head.own_embedding && head.own_output) && head.n_embd != head.n_target) {
        return path + " uses its target's matrices, but its states have " + std::to_string(head.n_embd) +
               " numbers and the target's " + std::to_string(head.n_target) + "; convert the head again";
    }
    const std::string why = head_shape_fault(read_file_header(path));
    return why.empty() ? "" : path + why + "; convert the head again";
}

} // namespace duo
