#include "model_reader.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "cpu/extra_buffers.h"
#include "cpu/shortage.h"
#include "cpu/team.h"
#include "cpu/weight_memory.h"
#include "failed_check.h"
#include "file_header.h"
#include "log.h"
#include "memory.h"
#include "packed_file.h"
#include "partial_file.h"

namespace duo {

namespace {

// Whether there was no memory for one of the CPU's extra buffers. reason: of libllama's log.
bool is_full(const std::string & reason) {
    const auto all = cpu::extra_buffers();
    return std::any_of(all.begin(), all.end(), [&reason](ggml_backend_buffer_type_t b) {
        return reason.find(std::string("unable to allocate ") + ggml_backend_buft_name(b) + " buffer") !=
               std::string::npos;
    });
}

// nullptr: there are none, or they cannot be used. Throws duo::error: the user stopped it, or there is not enough
// memory for weights that are not mapped.
std::shared_ptr<const cpu::packed_weights> open_packed(model_weights & w) {
    const model_options & opt = w.options;
    if (opt.packed.path.empty() || w.kernels.n_duo == 0 || opt.check_tensors) {
        return nullptr;
    }
    try {
        const packed_file file(opt.packed.path, opt.packed.source);
        if (opt.packed.check) {
            file.check(cpu::threads_here(), opt.keep_loading);
        }
        if (opt.load_mode == "mlock") {
            file.lock();
        }
        return file.weights();
    } catch (const error & e) {
        if (e.kind() == error_kind::cancelled) {
            throw;
        }
        w.warning = e.what();
    } catch (const std::exception & e) { // libggml's, of a damaged header
        w.warning =
            "the packed weights in " + opt.packed.path + " cannot be read: " + e.what() + "; run duo pack again";
    }
    if (read_file_header(opt.path).n_file_bytes > uint64_t(memory_available())) {
        throw error(error_kind::does_not_fit, w.warning);
    }
    return nullptr;
}

using model_ptr = std::shared_ptr<llama_model>;

model_ptr owned(llama_model * m) {
    return {m, [](llama_model * last) {
                if (last != nullptr) {
                    llama_model_free(last);
                }
            }};
}

// A file that libllama reads in part. nullptr: it reads the whole file.
std::unique_ptr<const partial_file> open_part(const model_weights & w, const llama_model_params & params,
                                              cpu::weight_loading & weights) {
    const std::string & path = w.options.path;
    if (w.kernels.n_duo == 0 || params.check_tensors || params.load_mode != LLAMA_LOAD_MODE_NONE ||
        !partial_file::can_read(path)) {
        return nullptr;
    }
    try {
        auto file = std::make_unique<const partial_file>(path, weights);
        return weights.read_nothing(file->n_most()) ? std::move(file) : nullptr;
    } catch (const error &) {
        return nullptr; // it cannot be mapped
    }
}

struct watched_file {
    const std::function<bool(float)> & keep_loading;
    const partial_file &               file;
};

// nullptr: libllama's log says why, or keep_loading() stopped it.
model_ptr load(model_weights & w, llama_model_params params) {
    const std::string & mode   = w.options.load_mode;
    const auto          packed = open_packed(w);
    cpu::weight_loading weights(packed, {.lock = mode == "mlock", .copy = mode == "none" || mode == "dio"});
    const auto          file = open_part(w, params, weights);
    model_ptr           m;
    if (file == nullptr) {
        m = owned(llama_model_load_from_file(w.options.path.c_str(), params));
    } else {
        watched_file watched{w.options.keep_loading, *file};
        if (watched.keep_loading) {
            params.progress_callback_user_data = &watched;
            params.progress_callback           = [](float, void * x) {
                const auto & both = *static_cast<const watched_file *>(x);
                return both.keep_loading(both.file.share_read());
            };
        }
        m = owned(llama_model_load_from_file_ptr(file->stream(), params));
        m = m != nullptr && file->fill(weights, watched.keep_loading) ? m : nullptr;
    }
    w.packed_file = weights.n_packed() > 0 ? w.options.packed.path : "";
    return m;
}

} // namespace

void read_model(model_weights & w, llama_model_params params) {
    const model_options & opt = w.options;
    if (opt.keep_loading) {
        params.progress_callback = [](float share, void * f) {
            return (*static_cast<const std::function<bool(float)> *>(f))(share);
        };
        params.progress_callback_user_data = &w.options.keep_loading;
    }
    log_clear_errors();
    const cpu::team_size      pack_team(std::max({1, opt.n_threads, opt.n_threads_batch}));
    const cpu::shortage_watch shortage;
    const auto                failed = [&](const std::string & reason) {
        return shortage.seen() || (params.use_extra_bufts && is_full(reason))
                                  ? error(error_kind::does_not_fit,
                                          "there is not enough memory to load " + opt.path + "; free memory or choose a smaller file")
                                  : error(error_kind::bad_value, opt.path + " could not be loaded" + reason);
    };
    const throwing_checks checks;
    try {
        w.model = load(w, params);
    } catch (const error &) {
        throw;
    } catch (const std::exception & e) {
        throw failed(std::string(": ") + e.what());
    }
    if (!w.model) {
        throw failed(log_reason() + "; check the file, or free memory");
    }
}

} // namespace duo
