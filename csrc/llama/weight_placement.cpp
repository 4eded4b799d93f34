#include "weight_placement.h"

#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "base/error.h"
#include "cpu/ggml_buffer.h"
#include "cpu/ggml_device.h"
#include "cpu/requantise.h"
#include "file_weights.h"

namespace duo {

namespace {

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

// What weights are requantised to; GGML_TYPE_COUNT: they are not.
ggml_type packed_type(const weight_packing & packing) {
    return packing.stored.empty() ? GGML_TYPE_COUNT : cpu::type_named(packing.stored);
}

} // namespace

ggml_type kept_type(const weight_packing & packing, const file_weight & w) {
    const ggml_type to      = packed_type(packing);
    const bool      repacks = to != GGML_TYPE_COUNT && !is_recurrent(w) &&
                         has(packing.types, std::string(ggml_type_name(w.type))) &&
                         cpu::shape_of(to, w.n_columns, w.n_rows) && cpu::conversion(w.type, to, w.n_columns);
    return repacks ? to : w.type;
}

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

void weight_placement::leave_to_stock(ggml_type type) {
    ++n_stock_;
    if (const std::string name = ggml_type_name(type); !has(stock_types_, name)) {
        stock_types_.push_back(name);
    }
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
                                                              [&](const file_weight & w) { return w.layer >= 0 && w.layer < n_trunk; });
    const auto counts          = [&](int layer) { return layer < n_trunk || !has_trunk_; };
    // The split of llama_model::load_tensors: the last layers go to the devices, and the output matrix counts as a
    // layer.
    const int64_t n_all       = file.n_layer + 1;
    const int64_t i_gpu_start = n_gpu_layers < 0 ? 0 : std::max<int64_t>(n_all - n_gpu_layers, 0);

    ggml_backend_buffer_type_t buft   = types.empty() ? nullptr : cpu::weight_buffer_type();
    ggml_backend_buffer_type_t packed = cpu::draft_buffer_type(packed_type(packing));
    using memory                      = ggml_backend_buffer_type_t;
    std::map<std::pair<memory, std::string>, std::set<int>> taken;  // layers of each kind for duo's kernels
    std::vector<std::pair<std::string, memory>>             others; // patterns of matrices outside the layers
    const auto to_cpu = [](const choice * c) { return c != nullptr && c->memory == ggml_backend_cpu_buffer_type(); };
    n_small_          = int(std::count_if(file.small.begin(), file.small.end(), counts));
    for (const file_weight & w : file.others) {
        if ((w.layer < i_gpu_start || to_cpu(choice_of(w.name))) && counts(w.layer)) {
            leave_to_stock(w.type);
            count_bytes(w.type, w.n_columns, w.n_rows, w.n_matrices);
        }
    }
    enum class place { cpu, device, other_memory };
    const auto place_of = [&](const file_weight & w) {
        const choice * const chosen = choice_of(w.name);
        const bool           stays  = (w.layer < 0 ? file.n_layer : w.layer) < i_gpu_start;
        return to_cpu(chosen) ? place::cpu : !stays ? place::device : chosen ? place::other_memory : place::cpu;
    };
    for (const file_weight & w : file.all) {
        const bool  counted = counts(w.layer);
        const place where   = place_of(w);
        if (where == place::device || !(counted || mtp)) {
            continue;
        }
        const bool        here = where == place::cpu;
        const std::string type = ggml_type_name(w.type);
        if (here && !has(cpu_types_, type)) {
            cpu_types_.push_back(type);
        }
        const ggml_type kept    = here && packed != nullptr ? kept_type(packing, w) : w.type;
        const bool      repacks = kept != w.type;
        const auto      shape   = cpu::shape_of(kept, w.n_columns, w.n_rows);
        if (counted) {
            count_bytes(kept, w.n_columns, w.n_rows, w.n_matrices);
        }
        if (!repacks && (!here || buft == nullptr || !shape || !has(types, type))) {
            if (counted && here) {
                leave_to_stock(w.type);
            } else if (counted) {
                ++n_stock_; // in memory that the user chose
            }
            continue;
        }
        n_duo_ += counted ? 1 : 0;
        n_duo_bytes_ += shape->bytes() * uint64_t(w.n_matrices);
        n_packed_ += repacks ? 1 : 0;
        const memory to = repacks ? packed : buft;
        duo_output_     = w.layer < 0 && w.name != name_fc ? w.name : duo_output_;
        if (w.layer < 0) {
            others.emplace_back("^" + w.name.substr(0, w.name.find('.')) + R"(\.weight$)", to);
        } else {
            taken[{to, w.kind}].insert(w.layer);
        }
    }
    const bool all_ours = buft != nullptr && n_duo_ > 0 && n_stock_ == 0;
    for (const file_weight & w : file.routers) {
        const place where = place_of(w);
        if (where == place::device || !(counts(w.layer) || mtp)) {
            continue;
        }
        if (all_ours && where == place::cpu && cpu::shape_of(w.type, w.n_columns, w.n_rows)) {
            taken[{buft, w.kind}].insert(w.layer);
        } else if (w.type == GGML_TYPE_F32) {
            n_small_ += counts(w.layer) ? 1 : 0;
        } else if (counts(w.layer) && where == place::cpu) {
            leave_to_stock(w.type);
        } else if (counts(w.layer)) {
            ++n_stock_; // as above
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
