// Loading a model. Its context is made in model_context.cpp.
#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <string>

#include "base/error.h"
#include "control_vector.h"
#include "cpu/extra_buffers.h"
#include "cpu/ggml_buffer.h"
#include "cpu/ggml_device.h"
#include "cpu/ggml_tiles.h"
#include "cpu/shortage.h"
#include "cpu/team.h"
#include "device.h"
#include "failed_check.h"
#include "head_rows.h"
#include "hidden.h"
#include "log.h"
#include "lora.h"
#include "memory.h"
#include "model.h"
#include "model_file.h"
#include "overrides.h"
#include "vocab_file.h"
#include "weight_placement.h"

namespace duo {

namespace {

llama_split_mode split_mode(const std::string & name) {
    return name == "none" ? LLAMA_SPLIT_MODE_NONE : name == "row" ? LLAMA_SPLIT_MODE_ROW : LLAMA_SPLIT_MODE_LAYER;
}

// libllama always reads one number per device.
std::vector<float> padded(std::vector<float> shares, size_t n_devices) {
    if (!shares.empty()) {
        shares.resize(std::max(n_devices, llama_max_devices()), 0.0f);
    }
    return shares;
}

} // namespace

llama_token_model::llama_token_model(const model_options & opt, bool is_draft, bool with_context,
                                     const llama_token_model * target)
    : opt_(opt), target_(target), is_draft_(is_draft) {
    load();
    if (with_context) {
        make_context();
        limit_vocab(n_vocab_);
    }
}

llama_token_model::llama_token_model(const model_options & opt, const llama_token_model & target)
    : opt_(opt), device_names_(target.device_names_), helpers_(target.helpers_),
      head_(read_head_file(target.opt_.path, true)), target_(&target), model_(target.model_), n_vocab_(target.n_vocab_),
      is_draft_(true), on_device_(target.on_device_),
      own_attention_(target.n_duo_products_ > 0 && target.n_duo_products_ == target.n_cpu_products_ &&
                     opt.flash_attn != "off" && opt.type_k == "f16" && opt.type_v == "f16" && device_names_.empty()),
      stock_products_(target.stock_products_), extra_buffers_(target.extra_buffers_) {
    opt_.keep_loading = nullptr;
    make_context();
    limit_vocab(n_vocab_);
}

llama_token_model::llama_token_model(shared_weights, const llama_token_model & other)
    : opt_(other.opt_), device_names_(other.device_names_), helpers_(other.helpers_), head_(other.head_),
      target_(other.target_), model_(other.model_), loras_(other.loras_), n_vocab_(other.n_vocab_),
      is_draft_(other.is_draft_), same_bits_(other.same_bits_), on_device_(other.on_device_),
      own_attention_(other.own_attention_), stock_products_(other.stock_products_),
      extra_buffers_(other.extra_buffers_), n_duo_products_(other.n_duo_products_),
      n_cpu_products_(other.n_cpu_products_), packed_as_(other.packed_as_), duo_output_(other.duo_output_),
      warning_(other.warning_) {
    make_context();
    limit_vocab(n_vocab_);
}

namespace {

// Whether there was no memory for one of the CPU's extra buffers. reason: of libllama's log.
bool is_full(const std::string & reason) {
    const auto all = cpu::extra_buffers();
    return std::any_of(all.begin(), all.end(), [&reason](ggml_backend_buffer_type_t b) {
        return reason.find(std::string("unable to allocate ") + ggml_backend_buft_name(b) + " buffer") !=
               std::string::npos;
    });
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

} // namespace

void llama_token_model::load() {
    check_model_file(opt_.path);
    head_ = is_draft_ ? read_head_file(opt_.path, opt_.mtp) : std::nullopt;
    try {
        load_file(opt_.cpu_types, opt_.packing, cpu::extra_buffers_allowed());
    } catch (const error & e) {
        // Packed weights need memory of their own, a mapped file does not. So the model may fit without them.
        if (e.kind() != error_kind::does_not_fit) {
            throw;
        }
        const bool stock = opt_.cpu_types.empty() && packed_as_.empty();
        warning_         = std::string("there is not enough memory for ") + (stock ? "stock" : "duo's") +
                   " CPU kernels to pack the weights of " + opt_.path + "; " +
                   (stock ? "they are used as they are in the file" : "stock kernels are used");
        load_file({}, {}, false);
    }
    if (llama_vocab_type(vocab()) == LLAMA_VOCAB_TYPE_NONE) {
        throw error(error_kind::unknown_model, opt_.path + " has no tokenizer; it cannot read a prompt");
    }
    if (!head_ && (!llama_model_has_decoder(model_.get()) || llama_model_has_encoder(model_.get()) ||
                   llama_model_is_diffusion(model_.get()))) {
        if (const std::string arch = meta("general.architecture"); arch == "eagle3" || arch == "dflash") {
            throw error(error_kind::unknown_model, opt_.path + " is a draft head (" +
                                                       (arch == "eagle3" ? "EAGLE-3" : "DFlash") +
                                                       "), which writes nothing alone; give it as the draft of the "
                                                       "target that it was made for (-md)");
        }
        throw error(error_kind::unknown_model,
                    opt_.path + " does not generate text token by token; choose a decoder-only language model");
    }
    check_borrowed();
    loras_   = load_loras(model_.get(), opt_);
    n_vocab_ = llama_vocab_n_tokens(vocab());
    if (const std::string why = head_ ? head_fault(opt_.path, n_vocab_) : ""; !why.empty()) {
        throw error(error_kind::bad_value, why);
    }
    opt_.keep_loading = nullptr; // it may hold objects that only the caller's thread may free
}

void llama_token_model::load_file(const std::vector<std::string> & cpu_types, const weight_packing & packing,
                                  bool extra_buffers) {
    std::vector<ggml_backend_dev_t> devices = resolve_devices(opt_.devices);
    device_names_.clear();
    for (size_t i = 0; i + 1 < devices.size(); ++i) {
        device_names_.emplace_back(ggml_backend_dev_name(devices[i]));
    }
    // Products of many rows are not the same bits on a device. An RPC server takes none.
    helpers_.clear();
    for (size_t i = 0; opt_.op_offload && !opt_.strict && i + 1 < devices.size(); ++i) {
        if (std::strcmp(type_name(devices[i]), "rpc") != 0) {
            helpers_.push_back(devices[i]);
        }
    }
    const int32_t n_gpu_layers = device_names_.empty() ? 0 : opt_.n_gpu_layers;
    on_device_                 = n_gpu_layers != 0 ||
                 std::any_of(opt_.override_tensors.begin(), opt_.override_tensors.end(), [this](const auto & o) {
                     return std::find(device_names_.begin(), device_names_.end(), o.second) != device_names_.end();
                 });
    const bool             mtp = is_mtp() || opt_.load_mtp;
    const weight_placement placement(opt_.path, cpu_types, n_gpu_layers, opt_.override_tensors, mtp, packing);
    duo_output_ = placement.duo_output();
    packed_as_  = placement.n_packed() > 0 ? packing.stored : "";
    has_mtp_    = placement.has_mtp() && placement.has_trunk();
    if (!head_ && !placement.has_trunk()) {
        throw error(error_kind::unknown_model,
                    opt_.path + " has MTP layers only, which write nothing alone; give it as the draft of the target " +
                        "that it was made for (-md)");
    }
    n_duo_products_     = placement.n_duo();
    n_cpu_products_     = placement.n_duo() + placement.n_stock();
    const bool all_ours = n_gpu_layers == 0 && n_duo_products_ > 0 && placement.n_stock() == 0;
    stock_products_     = placement.n_stock() + placement.n_small() > 0;
    // With --strict duo's attention joins stock products: it is the one that ignores where a text's cells lie.
    const bool strict  = opt_.strict && !is_draft_ && n_gpu_layers == 0 && cpu::weight_buffer_type() != nullptr;
    const bool attends = (all_ours || strict) && opt_.flash_attn != "off";
    same_bits_         = opt_.strict || (attends && !is_draft_);
    // Rows of a block see those after them.
    own_attention_ = attends && opt_.type_k == "f16" && opt_.type_v == "f16" && opt_.n_ctx != 1 && !is_block();

    llama_model_params params       = llama_model_default_params();
    params.devices                  = devices.data();
    params.n_gpu_layers             = n_gpu_layers;
    params.tensor_buft_overrides    = placement.entries();
    const std::vector<float> shares = padded(opt_.tensor_split, device_names_.size());
    params.tensor_split             = shares.empty() ? nullptr : shares.data();
    params.split_mode               = split_mode(opt_.split_mode);
    params.main_gpu                 = opt_.main_gpu;
    params.load_mtp                 = mtp;
    params.vocab_only               = opt_.vocab_only;
    const auto overrides            = header_overrides(opt_);
    params.kv_overrides             = overrides.empty() ? nullptr : overrides.data();
    // With repacked weights the kernel depends on the width.
    params.use_extra_bufts = !same_bits_ && extra_buffers &&
                             !(cpu::allowed_amx_buffers() != nullptr && has_planes(opt_.path, placement)) &&
                             cpu::learn_ggml_tiles();
    extra_buffers_ = params.use_extra_bufts || (target_ != nullptr && target_->extra_buffers_);
    if (opt_.load_mode != "auto" || n_duo_products_ > 0) {
        // Weights that will be packed are read, not mapped: a mapping would stay resident as a second copy.
        params.load_mode = opt_.load_mode == "mmap"    ? LLAMA_LOAD_MODE_MMAP
                           : opt_.load_mode == "mlock" ? LLAMA_LOAD_MODE_MLOCK
                           : opt_.load_mode == "dio"   ? LLAMA_LOAD_MODE_DIRECT_IO
                                                       : LLAMA_LOAD_MODE_NONE;
    }
    if (opt_.keep_loading) {
        params.progress_callback = [](float share, void * f) {
            return (*static_cast<const std::function<bool(float)> *>(f))(share);
        };
        params.progress_callback_user_data = &opt_.keep_loading;
    }
    log_clear_errors();
    const cpu::team_size      pack_team(std::max({1, opt_.n_threads, opt_.n_threads_batch}));
    const cpu::lock_weights   locked(opt_.load_mode == "mlock");
    const cpu::shortage_watch shortage;
    const auto                failed = [&](const std::string & reason) {
        return shortage.seen() || (params.use_extra_bufts && is_full(reason))
                                  ? error(error_kind::does_not_fit,
                                          "there is not enough memory to load " + opt_.path + "; free memory or choose a smaller file")
                                  : error(error_kind::bad_value, opt_.path + " could not be loaded" + reason);
    };
    const throwing_checks checks;
    try {
        model_.reset(llama_model_load_from_file(opt_.path.c_str(), params), [](llama_model * m) {
            if (m != nullptr) {
                llama_model_free(m);
            }
        });
    } catch (const std::exception & e) {
        throw failed(std::string(": ") + e.what());
    }
    if (!model_) {
        throw failed(log_reason() + "; check the file, or free memory");
    }
    has_mtp_ = has_mtp_ && runs_mtp(meta("general.architecture"));
    if (meta("general.architecture") == "grok") { // libllama never gives it flash attention
        same_bits_     = opt_.strict;
        own_attention_ = false;
    }
}

} // namespace duo
