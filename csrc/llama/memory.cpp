#include "memory.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>

namespace duo {

namespace {

constexpr uint64_t unknown = std::numeric_limits<uint64_t>::max();

// The number after `name` in a file of "name number" lines.
uint64_t field(const char * path, const std::string & name) {
    std::ifstream file(path);
    std::string   word;
    uint64_t      x = 0;
    while (file >> word) {
        if (word == name && file >> x) {
            return x;
        }
    }
    return unknown;
}

uint64_t number(const char * path) {
    std::ifstream file(path);
    uint64_t      x = 0;
    return file >> x ? x : unknown; // "max" means no limit
}

int64_t meta(const llama_model * model, const std::string & key, int64_t otherwise) {
    char text[32] = {};
    return llama_model_meta_val_str(model, key.c_str(), text, sizeof text) > 0 ? std::atoll(text) : otherwise;
}

} // namespace

uint64_t memory_available() {
    const uint64_t kib    = field("/proc/meminfo", "MemAvailable:");
    const uint64_t system = kib == unknown ? unknown : kib * 1024;
    // A container's limit. Its page cache counts as used, but the system can reclaim it.
    const uint64_t limit = number("/sys/fs/cgroup/memory.max");
    const uint64_t used  = number("/sys/fs/cgroup/memory.current");
    const uint64_t pages = field("/sys/fs/cgroup/memory.stat", "file");
    if (limit == unknown || used == unknown || pages == unknown) {
        return system;
    }
    const uint64_t taken = used - std::min(used, pages);
    return std::min(system, limit - std::min(limit, taken));
}

uint64_t cache_bytes(const llama_model * model, const std::string & arch, int64_t n_layer, uint64_t n_ctx,
                     int32_t n_gpu_layers, ggml_type k, ggml_type v) {
    const int64_t n_head = llama_model_n_head(model);
    if (n_head <= 0 || llama_model_is_recurrent(model) || llama_model_is_hybrid(model)) {
        return 0;
    }
    const auto     n_here  = uint64_t(n_gpu_layers < 0 ? 0 : std::max<int64_t>(0, n_layer - n_gpu_layers));
    const int64_t  n_embd  = llama_model_n_embd(model) / n_head;
    const int64_t  n_kv    = llama_model_n_head_kv(model);
    const auto     width_k = uint64_t(n_kv * meta(model, arch + ".attention.key_length", n_embd));
    const auto     width_v = uint64_t(n_kv * meta(model, arch + ".attention.value_length", n_embd));
    const uint64_t bytes   = width_k * ggml_type_size(k) / uint64_t(ggml_blck_size(k)) +
                           width_v * ggml_type_size(v) / uint64_t(ggml_blck_size(v));
    return n_here * n_ctx * bytes;
}

} // namespace duo
