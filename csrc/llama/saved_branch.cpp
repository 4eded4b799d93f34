#include "saved_branch.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "log.h"
#include "saved_cells.h"

namespace duo {

namespace {

struct sequence_head {
    uint32_t magic = 0xaf143cd8; // io_magic in llama-context.cpp
    int32_t  seq   = 0;
};

// What llama_kv_cache keeps of each cell with several positions (llama_kv_cell_ext: three numbers).
size_t n_extra_of(const llama_model * model) {
    const llama_rope_type kind = llama_model_rope_type(model);
    return kind == LLAMA_ROPE_TYPE_MROPE || kind == LLAMA_ROPE_TYPE_IMROPE ? 3 * sizeof(int32_t) : 0;
}

// What a whole context begins with.
std::string head_of(const model_weights & w) {
    const std::string name = w.architecture();
    const auto        n    = uint32_t(name.size());
    std::string       all(sizeof n, '\0');
    std::memcpy(all.data(), &n, sizeof n);
    return all + name;
}

// False: libllama refuses it. Throws duo::error for a layout that is not known.
bool restore_sequence(const model_weights & w, model_context & context, int32_t branch, bool has_state,
                      std::span<const char> saved) {
    const std::string before = head_of(w);
    if (saved.size() < before.size() || std::memcmp(saved.data(), before.data(), before.size()) != 0) {
        throw error(error_kind::bad_value, "it is of another architecture");
    }
    const auto          memory = saved.subspan(before.size());
    const sequence_head first{.seq = branch};
    std::string         image(sizeof first + memory.size(), '\0');
    std::memcpy(image.data(), &first, sizeof first);
    std::copy(memory.begin(), memory.end(), image.begin() + sizeof first);

    std::optional<saved_cells> cells;
    if (context.own_attention()) {
        const llama_model * m        = w.model.get();
        const size_t        n_caches = !context.has_cells() ? 0 : llama_model_n_swa(m) > 0 ? 2 : 1;
        cells.emplace(memory, n_extra_of(m), context.has_values() ? 2 : 1, has_state ? n_caches : SIZE_MAX);
        cells->mark(std::span(image).subspan(sizeof first));
    }
    const auto * from = reinterpret_cast<const uint8_t *>(image.data());
    if (llama_state_seq_set_data(context.get(), from, image.size(), branch) != image.size()) {
        return false;
    }
    if (cells) {
        cells->restore_keys(memory, context.cells(), context.text_of(branch));
    }
    return true;
}

// Of one text in all, the whole context is saved. A single sequence comes without the cells that a sliding window has
// passed, and a later text that shares only a part of this one needs them. With a recurrent state, no such text can
// use it.
bool is_saved_whole(const model_weights & w, bool can_rollback) {
    return w.options.n_parallel == 1 && can_rollback;
}

// Of the memory, as it will be saved.
size_t memory_bytes(const model_context & context, int32_t branch, kept_state * state, bool whole) {
    if (state != nullptr) {
        state->drop_padding();
    }
    return whole ? llama_state_get_size(context.get()) : llama_state_seq_get_size(context.get(), branch);
}

} // namespace

int64_t branch_bytes(const model_weights & w, const model_context & context, int32_t branch, kept_state * state,
                     bool can_rollback) {
    return int64_t(memory_bytes(context, branch, state, is_saved_whole(w, can_rollback))) +
           (state != nullptr ? state->mark_bytes() : 0);
}

std::string save_branch(const model_weights & w, const model_context & context, int32_t branch, kept_state * state,
                        bool can_rollback) {
    log_clear_errors();
    const bool   whole = is_saved_whole(w, can_rollback);
    auto *       c     = context.get();
    std::string  saved(memory_bytes(context, branch, state, whole), '\0');
    auto *       to = reinterpret_cast<uint8_t *>(saved.data());
    const size_t n =
        whole ? llama_state_get_data(c, to, saved.size()) : llama_state_seq_get_data(c, to, saved.size(), branch);
    if (n == 0 || n > saved.size() || (!whole && n < sizeof(sequence_head))) {
        throw error("the cache of " + w.options.path + " could not be saved" + log_reason());
    }
    saved.resize(n);
    if (!whole) {
        saved.replace(0, sizeof(sequence_head), head_of(w));
    }
    if (state != nullptr) {
        saved += state->marks();
    }
    return saved;
}

void restore_branch(const model_weights & w, model_context & context, int32_t branch, kept_state * state,
                    std::span<const char> saved) {
    const llama_memory_t memory = context.memory();
    log_clear_errors();
    std::string why;
    try {
        if (state != nullptr) {
            state->forget();
            saved = state->set_marks(saved);
        }
        if (memory != nullptr && restore_sequence(w, context, branch, state != nullptr, saved)) {
            return;
        }
    } catch (const std::exception & e) {
        why = std::string(" (") + e.what() + ")";
    }
    if (memory != nullptr) {
        llama_memory_seq_rm(memory, branch, -1, -1);
    }
    if (state != nullptr) {
        state->forget();
    }
    throw error(error_kind::bad_value, "the saved state does not fit the cache of " + w.options.path +
                                           (why.empty() ? log_reason() : why) + "; evaluate the text again");
}

} // namespace duo
