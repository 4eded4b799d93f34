#include "model_reader.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/read_ahead.h"
#include "cpu/extra_buffers.h"
#include "cpu/shortage.h"
#include "cpu/team.h"
#include "cpu/weight_memory.h"
#include "failed_check.h"
#include "file_header.h"
#include "log.h"
#include "memory.h"
#include "model_parts.h"
#include "packed_file.h"
#include "packed_header.h"
#include "unpacked_file.h"

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

void check_all(const packed_file & file, const model_options & opt) {
    file.check(cpu::threads_here(), [&opt](float) { return !opt.keep_loading || opt.keep_loading(0.0f); });
}

// unpacked: of the model's file; nullptr: it is no packed one. nullptr: there are none, or they cannot be used. Throws
// duo::error: the user stopped it, or there is not enough memory for weights that are not mapped.
std::shared_ptr<const cpu::packed_weights> open_packed(model_weights & w, const shared_unpacked & unpacked) {
    const model_options & opt = w.options;
    if (opt.packed.path.empty() || w.kernels.n_duo == 0 || opt.check_tensors) {
        return nullptr;
    }
    const auto weights_of = [&opt](const packed_file & file) {
        if (opt.load_mode == "mlock") {
            file.lock();
        }
        return file.weights();
    };
    std::error_code ec;
    if (unpacked != nullptr &&
        (opt.packed.path == opt.path || std::filesystem::equivalent(opt.packed.path, opt.path, ec))) {
        return weights_of(unpacked->packed()); // checked already
    }
    try {
        const packed_file file(opt.packed.path);
        file.check_source(opt.packed.source);
        if (opt.packed.check) {
            check_all(file, opt);
        }
        return weights_of(file);
    } catch (const error & e) {
        if (e.kind() == error_kind::cancelled) {
            throw;
        }
        w.warning = e.what();
    }
    if (w.kernels.n_duo_bytes > memory_available()) {
        throw error(error_kind::does_not_fit, w.warning);
    }
    return nullptr;
}

struct watched_loading {
    const std::function<bool(float)> & keep_loading;
    float                              share = 0.0f; // of the file, that is read so far

    bool note(float now) {
        share = now;
        return keep_loading(now);
    }
};

using model_ptr = std::shared_ptr<llama_model>;

model_ptr owned(llama_model * m) {
    return {m, [](llama_model * last) {
                if (last != nullptr) {
                    llama_model_free(last);
                }
            }};
}

// nullptr: libllama reads all weights by itself.
std::unique_ptr<const model_parts> open_parts(const model_weights & w, const shared_unpacked & unpacked,
                                              const llama_model_params & params) {
    const bool maps = unpacked == nullptr && params.load_mode != LLAMA_LOAD_MODE_NONE;
    if (w.kernels.n_duo == 0 || params.check_tensors || maps) {
        return nullptr;
    }
    try {
        return std::make_unique<const model_parts>(w.options.path, unpacked);
    } catch (const error & e) {
        if (e.kind() != error_kind::does_not_fit) { // it cannot be mapped here
            throw;
        }
        return nullptr;
    }
}

constexpr uint64_t n_worth_a_thread = uint64_t(64) << 20; // bytes

// With --numa the thread that reads a page first chooses the node that it lies on.
bool has_nodes() {
    ggml_backend_reg_t const reg = ggml_backend_reg_by_name("CPU");
    auto * const             is_numa =
        reg == nullptr ? nullptr : ggml_backend_reg_get_proc_address(reg, "ggml_backend_cpu_is_numa");
    return is_numa != nullptr && reinterpret_cast<bool (*)()>(is_numa)();
}

// What will be used when libllama has the vocabulary, which takes it half a second. Of a file that is larger than the
// memory, pages come when they are used.
std::vector<std::shared_ptr<const file_map>> soon_used(const model_weights & w, const cpu::packed_weights * packed,
                                                       const model_parts * parts, const llama_model_params & params) {
    if (params.vocab_only || w.options.load_mode == "dio" || has_nodes()) {
        return {};
    }
    std::vector<std::shared_ptr<const file_map>> files;
    if (packed != nullptr) {
        files.push_back(packed->file());
    } else if (parts != nullptr) {
        files = parts->files();
    }
    uint64_t n_all = 0;
    for (const auto & file : files) {
        n_all += file->size();
    }
    const bool worth = n_all >= n_worth_a_thread && n_all <= memory_available();
    return worth ? std::move(files) : std::vector<std::shared_ptr<const file_map>>();
}

// nullptr: libllama's log says why, or keep_loading() stopped it.
model_ptr load(model_weights & w, llama_model_params params) {
    const std::string &   mode     = w.options.load_mode;
    const shared_unpacked unpacked = open_unpacked(w.options.path);
    if (unpacked != nullptr && w.options.packed.check && !params.vocab_only) {
        check_all(unpacked->packed(), w.options);
    }
    const auto packed = open_packed(w, unpacked);
    // The check of the memory before loading counts on the mapped file, as the user asked.
    if (mode == "mmap" && packed == nullptr && unpacked == nullptr && !params.vocab_only &&
        w.kernels.n_duo_bytes > memory_available()) {
        throw error(error_kind::does_not_fit, "there is not enough memory to pack the weights of " + w.options.path);
    }
    cpu::weight_loading weights(packed, {.lock = mode == "mlock", .copy = mode == "none" || mode == "dio"});
    const auto          parts   = open_parts(w, unpacked, params);
    auto                reading = std::make_shared<const read_ahead>(soon_used(w, packed.get(), parts.get(), params));
    watched_loading     watched{w.options.keep_loading};
    if (watched.keep_loading) {
        params.progress_callback = [](float share, void * x) { return static_cast<watched_loading *>(x)->note(share); };
        params.progress_callback_user_data = &watched;
    }
    if (parts != nullptr) {
        weights.fill_later();
    }
    model_ptr m   = owned(load_model(w.options.path, unpacked, params));
    w.packed_file = weights.n_packed() > 0 ? w.options.packed.path : "";
    w.n_from_file = int32_t(weights.n_packed());
    w.mapped      = weights.n_packed() > 0 && !weights.wanted().copy ? packed : nullptr;
    w.reading     = w.mapped != nullptr ? reading : nullptr;
    reading.reset(); // of weights that are packed now, pages are given back one after the other
    if (m != nullptr && packed != nullptr && weights.n_packed() == 0 && unpacked == nullptr) {
        w.warning = "nothing in " + w.options.packed.path + " is what duo's kernels use here; run duo pack again" +
                    (w.is_draft ? " with --draft" : "");
    }
    const bool all =
        m == nullptr || parts == nullptr || parts->fill(weights, [&watched, first = watched.share](float filled) {
            return !watched.keep_loading || watched.note(first + (1.0f - first) * filled);
        });
    if (packed != nullptr && packed->lost()) {
        throw error(error_kind::bad_value,
                    w.options.packed.path + " could not be read; check its disk, and run duo pack again");
    }
    if (unpacked != nullptr && unpacked->lost()) {
        throw error(error_kind::bad_value, w.options.path + " could not be read; check its disk");
    }
    return all ? m : nullptr;
}

} // namespace

void read_model(model_weights & w, const llama_model_params & params) {
    const model_options & opt = w.options;
    log_clear_errors();
    const cpu::team_size      pack_team(std::max({1, opt.n_threads, opt.n_threads_batch}));
    const cpu::shortage_watch shortage;
    const auto                failed = [&](const std::string & reason) {
        return shortage.seen() || (params.use_extra_bufts && is_full(reason))
                                  ? error(error_kind::does_not_fit,
                                          "there is not enough memory to load " + opt.path + "; free memory or choose a smaller file")
                                  : error(error_kind::bad_value, opt.path + " could not be loaded" + reason);
    };
    static std::mutex             one_at_a_time; // so that each knows what it has mapped
    std::unique_lock              alone(one_at_a_time, std::defer_lock);
    std::shared_ptr<mapped_files> files;
    const bool maps = (params.load_mode != LLAMA_LOAD_MODE_NONE && params.load_mode != LLAMA_LOAD_MODE_DIRECT_IO) ||
                      params.lazy_mode == LLAMA_LAZY_MODE_ON;
    if (maps && !is_packed_file(opt.path)) {
        alone.lock();
        files = std::make_shared<mapped_files>(read_file_header(opt.path).parts);
    }
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
    if (files != nullptr) {
        files->watch();
        w.files = std::move(files);
    }
}

} // namespace duo
