#include "weights_loader.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "cpu/extra_buffers.h"
#include "cpu/ggml_buffer.h"
#include "cpu/ggml_device.h"
#include "cpu/ggml_tiles.h"
#include "device.h"
#include "gguf_handle.h"
#include "head_rows.h"
#include "hidden.h"
#include "lora.h"
#include "memory.h"
#include "model_file.h"
#include "model_reader.h"
#include "overrides.h"
#include "packed_file.h"
#include "vocab_file.h"
#include "weight_placement.h"

namespace duo {

namespace {

llama_split_mode split_mode(const std::string & name) {
    return name == "none" ? LLAMA_SPLIT_MODE_NONE : name == "row" ? LLAMA_SPLIT_MODE_ROW : LLAMA_SPLIT_MODE_LAYER;
}

llama_lazy_mode lazy_mode(const std::string & name) {
    return name == "on" ? LLAMA_LAZY_MODE_ON : name == "off" ? LLAMA_LAZY_MODE_OFF : LLAMA_LAZY_MODE_AUTO;
}

llama_load_mode load_mode(const std::string & name) {
    return name == "mmap"    ? LLAMA_LOAD_MODE_MMAP
           : name == "mlock" ? LLAMA_LOAD_MODE_MLOCK
           : name == "dio"   ? LLAMA_LOAD_MODE_DIRECT_IO
                             : LLAMA_LOAD_MODE_NONE;
}

// libllama always reads one number per device.
std::vector<float> padded(std::vector<float> shares, size_t n_devices) {
    if (!shares.empty()) {
        shares.resize(std::max(n_devices, llama_max_devices()), 0.0f);
    }
    return shares;
}

// Recurrent layers compute texts that are written together as planes, and so do layers whose weights have planes.
bool has_planes(const std::string & path, const weight_placement & placement) {
    if (placement.has_planes()) {
        return true;
    }
    try {
        return vocab_file(path).keeps_state();
    } catch (const error &) {
        return false; // a draft head without a vocabulary, or loading reports the fault
    }
}

// Duo's attention reads only such a cache.
bool has_own_cache(const model_options & opt) {
    return opt.flash_attn != "off" && opt.type_k == "f16" && opt.type_v == "f16";
}

class weights_loader {
  public:
    weights_loader(model_weights & w, const model_weights * target) : w_(w), opt_(w.options), target_(target) {}

    void load();

  private:
    void load_file(const std::vector<std::string> & cpu_types, const weight_packing & packing, bool extra_buffers);
    std::vector<ggml_backend_dev_t> choose_devices();
    void choose_kernels(const weight_placement & placement, const weight_packing & packing, int32_t n_gpu_layers);
    void limit_promise(const weight_placement & placement);
    void check_borrowed() const;
    void check_kind() const;

    model_weights &       w_;
    const model_options & opt_;
    const model_weights * target_;
};

// Rows of the vectors that are added for the positions of tokens; 0: there are none.
int32_t positions_of(const std::string & path) {
    const gguf_handle   header(path);
    const ggml_tensor * t = header ? ggml_get_tensor(header.tensors(), "position_embd.weight") : nullptr;
    return t == nullptr ? 0 : int32_t(t->ne[1]);
}

void weights_loader::load() {
    check_model_file(opt_.path);
    w_.head = w_.is_draft ? read_head_file(opt_.path, opt_.mtp) : std::nullopt;
    try {
        load_file(opt_.cpu_types, opt_.packing, opt_.repack && cpu::extra_buffers_allowed());
    } catch (const error & e) {
        // Packed weights need memory of their own, a mapped file does not. So the model may fit without them.
        if (e.kind() != error_kind::does_not_fit) {
            throw;
        }
        if (gguf_handle(opt_.path).n_unpacked() > memory_available()) { // a packed file is unpacked into memory
            throw;
        }
        const bool        stock  = opt_.cpu_types.empty() && w_.kernels.packed_as.empty();
        const std::string before = w_.warning.empty() ? "" : w_.warning + "; ";
        w_.warning               = before + "there is not enough memory for " + (stock ? "stock" : "duo's") +
                     " CPU kernels to pack the weights of " + opt_.path + "; " +
                     (stock ? "they are used as they are in the file" : "stock kernels are used");
        load_file({}, {}, false);
    }
    check_kind();
    check_borrowed();
    w_.loras = opt_.vocab_only ? std::vector<llama_adapter_lora *>() : load_loras(w_.model.get(), opt_);
    if (const std::string why = w_.head ? head_fault(opt_.path, w_.n_vocab()) : ""; !why.empty()) {
        throw error(error_kind::bad_value, why);
    }
    forget_header(opt_.path);
    forget_packed_header(opt_.path);
    forget_packed_header(opt_.packed.path);
}

void weights_loader::load_file(const std::vector<std::string> & cpu_types, const weight_packing & packing,
                               bool extra_buffers) {
    std::vector<ggml_backend_dev_t> devices      = choose_devices();
    const int32_t                   n_gpu_layers = w_.devices.names.empty() ? 0 : opt_.n_gpu_layers;
    const bool                      mtp          = w_.is_mtp() || opt_.load_mtp;
    const weight_placement          placement(opt_.path, cpu_types, n_gpu_layers, opt_.override_tensors, mtp, packing);
    if (!w_.head && !placement.has_trunk()) {
        throw error(error_kind::unknown_model,
                    opt_.path + " has MTP layers only, which write nothing alone; give it as the draft of the target " +
                        "that it was made for (-md)");
    }
    choose_kernels(placement, packing, n_gpu_layers);

    llama_model_params params       = llama_model_default_params();
    params.devices                  = devices.data();
    params.n_gpu_layers             = n_gpu_layers;
    params.tensor_buft_overrides    = placement.entries();
    const std::vector<float> shares = padded(opt_.tensor_split, w_.devices.names.size());
    params.tensor_split             = shares.empty() ? nullptr : shares.data();
    params.split_mode               = split_mode(opt_.split_mode);
    params.main_gpu                 = opt_.main_gpu;
    params.load_mtp                 = mtp;
    params.vocab_only               = opt_.vocab_only;
    params.check_tensors            = opt_.check_tensors;
    params.no_host                  = !opt_.host_buffers;
    const auto overrides            = header_overrides(opt_);
    params.kv_overrides             = overrides.empty() ? nullptr : overrides.data();
    // With repacked weights the kernel depends on the width.
    params.use_extra_bufts = !w_.kernels.same_bits && extra_buffers &&
                             !(cpu::allowed_amx_buffers() != nullptr && has_planes(opt_.path, placement)) &&
                             cpu::learn_ggml_tiles();
    w_.kernels.extra = params.use_extra_bufts || (target_ != nullptr && target_->kernels.extra);
    // Weights that will be packed are read, not mapped: a mapping would stay resident as a second copy.
    if (opt_.load_mode != "auto" || w_.kernels.n_duo > 0) {
        params.load_mode = load_mode(opt_.load_mode);
    }
    params.lazy_mode = lazy_mode(opt_.lazy_mode);
    read_model(w_, params);
    w_.n_positions = positions_of(opt_.path);
    w_.has_mtp     = placement.has_mtp() && placement.has_trunk() && runs_mtp(w_.architecture());
    limit_promise(placement);
}

// What libllama's own graph leaves of equal bits.
void weights_loader::limit_promise(const weight_placement & placement) {
    kernel_choice & k = w_.kernels;
    if (w_.architecture() == "grok") { // libllama never gives it flash attention
        k.same_bits = opt_.strict;
        k.attention = false;
    }
    const llama_model * m = w_.model.get();
    // A file of MTP layers only attends, whatever its architecture.
    if (placement.has_trunk() && (llama_model_is_recurrent(m) || llama_model_is_hybrid(m))) {
        k.same_bits = opt_.strict;
        k.attention = k.attention && opt_.strict && !w_.is_draft;
        k.stock = k.state = true;
        k.rounds          = w_.architecture() == "minimax-01"; // the blocks of its recurrence start with each pass
    }
}

// Those that the model may use, as libllama wants them: nullptr at the end.
std::vector<ggml_backend_dev_t> weights_loader::choose_devices() {
    std::vector<ggml_backend_dev_t> devices = resolve_devices(opt_.devices);
    w_.devices                              = {};
    for (size_t i = 0; i + 1 < devices.size(); ++i) {
        w_.devices.names.emplace_back(ggml_backend_dev_name(devices[i]));
        // Products of many rows are not the same bits on a device. An RPC server takes none.
        if (opt_.op_offload && !opt_.strict && std::strcmp(type_name(devices[i]), "rpc") != 0) {
            w_.devices.helpers.push_back(devices[i]);
        }
    }
    const auto & names = w_.devices.names;
    w_.devices.hold_weights =
        (!names.empty() && opt_.n_gpu_layers != 0) ||
        std::any_of(opt_.override_tensors.begin(), opt_.override_tensors.end(), [&names](const auto & o) {
            return std::find(names.begin(), names.end(), o.second) != names.end();
        });
    return devices;
}

void weights_loader::choose_kernels(const weight_placement & placement, const weight_packing & packing,
                                    int32_t n_gpu_layers) {
    const bool all_ours = n_gpu_layers == 0 && placement.n_duo() > 0 && placement.n_stock() == 0;
    // With --strict duo's attention joins stock products: it is the one that ignores where a text's cells lie.
    const bool strict  = opt_.strict && !w_.is_draft && n_gpu_layers == 0 && cpu::weight_buffer_type() != nullptr;
    const bool attends = (all_ours || strict) && opt_.flash_attn != "off";
    w_.kernels         = {
                .same_bits = opt_.strict || (attends && !w_.is_draft),
        // Rows of a block see those after them.
                .attention   = attends && has_own_cache(opt_) && opt_.n_ctx != 1 && !w_.is_block(),
                .stock       = placement.n_stock() + placement.n_small() > 0,
                .n_duo       = placement.n_duo(),
                .n_duo_bytes = placement.n_duo_bytes(),
                .n_cpu       = placement.n_duo() + placement.n_stock(),
                .packed_as   = placement.n_packed() > 0 ? packing.stored : "",
                .output      = placement.duo_output(),
                .stock_types = placement.stock_types(),
    };
}

// Throws duo::error if it is no model that writes text token by token.
void weights_loader::check_kind() const {
    const llama_model * m = w_.model.get();
    if (llama_vocab_type(w_.vocab()) == LLAMA_VOCAB_TYPE_NONE) {
        throw error(error_kind::unknown_model, opt_.path + " has no tokenizer; it cannot read a prompt");
    }
    if (w_.head || (llama_model_has_decoder(m) && !llama_model_has_encoder(m) && !llama_model_is_diffusion(m))) {
        return;
    }
    if (const std::string arch = w_.architecture(); arch == "eagle3" || arch == "dflash") {
        const std::string kind = arch == "eagle3" ? "EAGLE-3" : "DFlash";
        throw error(error_kind::unknown_model,
                    opt_.path + " is a draft head (" + kind +
                        "), which writes nothing alone; give it as the draft of its target (-md)");
    }
    throw error(error_kind::unknown_model, opt_.path + " writes no text token by token; choose a decoder-only model");
}

// Throws duo::error if the head must use a matrix of a target that it cannot reach.
void weights_loader::check_borrowed() const {
    if (!w_.head || (w_.head->own_embedding && w_.head->own_output)) {
        return;
    }
    if (target_ == nullptr) {
        throw error(error_kind::bad_value,
                    opt_.path + " reads matrices of its target and only works beside its target; load both");
    }
    if (!w_.head->own_output && !(w_.devices.names.empty() && target_->devices.names.empty())) {
        throw error(error_kind::bad_value,
                    opt_.path + " uses its target's output matrix; put both on the CPU (-dev none -devd none)");
    }
}

} // namespace

std::shared_ptr<const model_weights> load_weights(const model_options & opt, bool is_draft,
                                                  const model_weights * target) {
    auto w      = std::make_shared<model_weights>();
    w->options  = opt;
    w->is_draft = is_draft;
    weights_loader(*w, target).load();
    w->options.keep_loading = nullptr; // it may hold objects that only the caller's thread may free
    return w;
}

std::shared_ptr<const model_weights> mtp_weights(const model_options & opt, const model_weights & target) {
    auto w                  = std::make_shared<model_weights>();
    w->options              = opt;
    w->options.keep_loading = nullptr;
    w->is_draft             = true;
    w->head                 = read_head_file(target.options.path, true);
    w->model                = target.model;
    w->files                = target.files;
    w->devices              = target.devices;
    w->kernels.attention    = target.kernels.all_duo() && has_own_cache(opt) && target.devices.names.empty();
    w->kernels.stock        = target.kernels.stock;
    w->kernels.extra        = target.kernels.extra;
    return w;
}

} // namespace duo
