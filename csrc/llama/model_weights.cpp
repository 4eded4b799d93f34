#include "model_weights.h"

#include <algorithm>

#include "base/error.h"

namespace duo {

std::string model_weights::lost_file() const {
    return mapped && mapped->lost() ? packed_file : files ? files->lost() : "";
}

void model_weights::check_files() const {
    if (const std::string lost = lost_file(); !lost.empty()) {
        throw error(lost + " can no longer be read: its disk failed, or the file became shorter; check it and load the "
                           "model again");
    }
}

std::string model_weights::description() const {
    std::string   text(128, '\0');
    const int32_t n = llama_model_desc(model.get(), text.data(), text.size());
    text.resize(std::min(text.size() - 1, size_t(std::max(n, 0))));
    return text;
}

std::string model_weights::meta(const std::string & key) const {
    std::string   text(256, '\0');
    const int32_t n = llama_model_meta_val_str(model.get(), key.c_str(), text.data(), text.size());
    if (n < 0) {
        return {};
    }
    if (size_t(n) >= text.size()) {
        text.resize(size_t(n) + 1);
        llama_model_meta_val_str(model.get(), key.c_str(), text.data(), text.size());
    }
    text.resize(size_t(n));
    return text;
}

std::vector<std::string> model_weights::device_names() const {
    return devices.hold_weights ? devices.names : std::vector<std::string>();
}

std::vector<std::string> model_weights::helper_names() const {
    return helped() ? devices.names : std::vector<std::string>();
}

int32_t model_weights::n_ctx() const {
    const int32_t n_own = n_ctx_train();
    const int32_t n     = options.n_ctx > 0        ? options.n_ctx
                          : options.n_ctx_most > 0 ? std::min(n_own, options.n_ctx_most)
                                                   : n_own;
    return n_positions > 0 ? std::min(n, n_positions) : n;
}

bool model_weights::keeps_state() const {
    return !is_mtp() && (llama_model_is_recurrent(model.get()) || llama_model_is_hybrid(model.get()));
}

int32_t model_weights::n_features() const {
    return options.mtp && !is_draft ? llama_model_n_embd_out(model.get())
                                    : int32_t(options.feature_layers.size()) * llama_model_n_embd(model.get());
}

int32_t model_weights::n_state() const {
    return !head ? 0 : is_block() ? head->n_inputs() : int32_t(head->n_embd); // its cells are made of the inputs
}

} // namespace duo
